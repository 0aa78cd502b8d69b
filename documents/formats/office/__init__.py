"""Office documents, each an archive of XML.

docx, pptx  Word documents and PowerPoint presentations
odt         OpenDocument texts
"""
