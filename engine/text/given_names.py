"""Words in names: frequent given names that are no ordinary words (public domain), titles, particles."""

from __future__ import annotations

from typing import Final

from engine.text.languages import of_all

_WOMEN: Final = """
Agathe Agnieszka Agnès Aisha Alexandra Alice Amanda Amelie Amina Amy Angela Angelika Anja Anna Anne
Annie Antonia Ashley Aurélie Ava Aylin Barbara Bettina Betty Birgit Brigitte Carmen Carol Catherine
Charlotte Chiara Chloé Christina Christine Clara Claudia Clémence Cornelia Céline Deborah Donna
Doris Dorothy Elena Elif Elisabeth Elizabeth Elke Emily Emma Eva Ewa Fatma Fiona Francesca Franziska
Françoise Frieda Gabriele Gertrud Gisela Giulia Greta Hannah Heike Helen Hildegard Holly Hélène Ida
Ingrid Inès Irina Isabelle Jana Jane Jeanne Jennifer Jessica Johanna Julia Juliette Karen Katarzyna
Kate Katrin Kerstin Kimberly Laura Leila Lena Leonie Lina Linda Lisa Lotte Louise Lucia Lucie Lucy
Luisa Léa Manon Maren Margaret Margarete Margaux Maria Marie Marion Marlene Martha Martina Martine
Mary Mathilda Mathilde Megan Melanie Melissa Mia Michelle Monika Monique Nadia Nancy Natalia
Nathalie Nicole Nina Noémie Océane Olga Olivia Patricia Paula Pauline Petra Priya Rachel Rebecca
Renate Ruth Sabine Samantha Samira Sandra Sandrine Sarah Silke Sonja Sophie Stefanie Stephanie Susan
Susanne Svenja Svetlana Sylvie Tanja Theresa Ulrike Ursula Valérie Victoria Véronique Zeynep Zoe
Élodie Émilie
"""
_MEN: Final = """
Adam Ahmed Alain Alexander Ali Andreas Andrew Anthony Antoine Anton Antonio Arthur Axel Ben Benjamin
Benoît Bernard Bernd Bernhard Brandon Brian Bruno Carlos Charles Christian Christoph Christophe
Christopher Claude Colin Cédric Damien Daniel David Denis Didier Dieter Dirk Dmitri Dominik Donald
Duncan Edward Elias Emil Emre Eric Erich Ernst Fabian Felix Finn Florian Frank François Friedrich
Frédéric Gabriel Gary Gaël Georg George Georges Gerhard Gilles Giovanni Graham Gregory Guillaume
Gérard Günter Hans Harry Hassan Heinrich Helmut Henri Henry Herbert Hervé Holger Horst Hugo Ian Ivan
Jack Jacob Jacques Jakob James Jason Jean Jeffrey Jens Joachim Johannes John Jonas Joseph José Jules
Julian Julien Justin Jürgen Karl Kenji Kenneth Kevin Klaus Konrad Kurt Lars Laurent Leon Louis Luc
Luca Ludwig Lukas Léo Manfred Marcel Marco Markus Mathieu Matthew Matthias Max Maxime Mehmet Michael
Michel Miguel Moritz Mustafa Nathan Neil Nicholas Nicolas Niklas Nils Noah Norbert Oliver Olivier
Omar Oskar Otto Pascal Patrice Patrick Paul Pavel Peter Philip Philipp Philippe Pierre Piotr Rainer
Ralf Raphaël René Richard Robert Roger Rolf Romain Ronald Rudolf Ryan Rémi Samuel Sebastian Serge
Simon Stefan Stephen Steven Stuart Stéphane Sven Sébastien Thierry Thomas Théo Tim Timothy Tobias
Tomasz Torsten Uwe Vincent Volker Walter Werner Wilhelm William Wolfgang Xavier Yves Étienne
"""
# "f" or "m" by name
GIVEN_NAMES: Final = {**dict.fromkeys(_WOMEN.split(), "f"), **dict.fromkeys(_MEN.split(), "m")}
TITLES: Final = frozenset(of_all(lambda rules: rules.title_words))
OWN_TITLES: Final = frozenset(of_all(lambda rules: rules.own_title_words))  # titles in one language only
NOT_NAMES: Final = TITLES.union(of_all(lambda rules: rules.not_names))
# small words within names: van Beethoven, von und zu Guttenberg
PARTICLES: Final = frozenset(
    {"van", "von", "der", "den", "de", "da", "di", "du", "del", "della", "la", "le", "ten", "ter", "zu"}
    | {"und", "ibn", "al", "el", "dos", "y"}
)
MAX_CAPITALS_SHARE: Final = 0.67  # words with capitals after the first word; headings have more
