"""Words in names: frequent given names that are no ordinary words (public domain), titles, particles."""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from typing import Final, NamedTuple

from engine.text.languages import of_all, rules_of

_WOMEN: Final = """
Adele Agathe Agnes Agnieszka Agnès Aisha Alexandra Alice Amanda Amelie Amina Amy Angela Angelika
Anita Anja Anna Anne Anneliese Annette Annie Anouk Antonia Ashley Aurélie Ava Aylin Barbara Beate
Beatrice Bettina Betty Bianca Birgit Brenda Brigitte Carla Carmen Carol Caroline Catherine
Charlotte Chiara Chloé Christa Christina Christine Clara Claudia Clémence Corinne Cornelia Cécile
Céline Dagmar Deborah Diana Donna Doris Dorothy Edith Eleanor Elena Elfriede Elif Elisabeth Elise
Elizabeth Elke Ella Elsa Emily Emma Erika Erna Estelle Esther Eugénie Eva Evelyn Ewa Fanny Fatma
Fiona Francesca Franziska Françoise Frida Frieda Gabriele Gerda Gertrud Ginette Gisela Giulia Gloria
Greta Hanna Hannah Harriet Hedwig Heike Helen Helena Helga Henriette Hermine Hildegard Holly Hélène
Ida Ilse Imogen Inge Ingrid Inès Irene Irina Irma Isabelle Jacqueline Jana Jane Janet Janine Jeanne
Jennifer Jessica Jill Joanna Jocelyne Johanna Josephine Josette Judith Julia Juliette Karen Karin
Karla Katarzyna Kate Kathleen Katrin Kerstin Kimberly Kirsten Käthe Larissa Laura Leah Leila Lena
Leonie Lieselotte Lilian Lina Linda Lisa Liselotte Lotte Louise Lucia Lucie Lucy Luisa Luise Léa
Magda Magdalena Manon Maren Margaret Margarete Margaux Marguerite Maria Marianne Marie Marion
Marlene Marlies Martha Martina Martine Mary Mathilda Mathilde Maud Mechthild Megan Melanie Melissa
Meredith Mia Michelle Mireille Miriam Monika Monique Muriel Nadia Nadine Nancy Naomi Natalia
Nathalie Nelly Nicole Nina Nora Noémie Océane Odette Olga Olivia Patricia Paula Paulette Pauline
Petra Phoebe Priya Rachel Ramona Rebecca Renate Rita Roberta Romy Rosalie Rosemarie Roswitha Ruth
Sabine Sabrina Samantha Samira Sandra Sandrine Sarah Selina Sheila Sibylle Sigrid Silke Simone
Solange Sonja Sophie Stefanie Stephanie Susan Susanne Svenja Svetlana Sylvia Sylvie Tamara Tanja
Theresa Tina Traudl Trudy Ulrike Ursula Valérie Vanessa Vera Victoria Vivienne Véronique Waltraud
Wendy Yasmin Yvette Yvonne Zeynep Zoe Élodie Émilie
"""
_MEN: Final = """
Achim Adam Adrian Ahmed Alain Albert Albrecht Aldo Alexander Alfons Alfred Ali Alistair Alois Amir
Andreas Andrew Anthony Antoine Anton Antonio Armand Arnold Arthur Axel Barry Bastien Ben Benjamin
Benoît Bernard Bernd Bernhard Bertrand Bjørn Boris Brandon Brian Bruce Bruno Burkhard Carlos Charles
Christian Christoph Christophe Christopher Claude Clemens Clément Colin Connor Craig Cyril Cédric
Damien Daniel Darren David Denis Derek Detlef Didier Dieter Dietmar Dirk Dmitri Dominik Donald
Douglas Duncan Eckhard Edgar Edmund Edward Egon Ekkehard Elias Emil Emmanuel Emre Eric Erich Ernst
Eugen Ewald Fabian Fabrice Felix Ferdinand Finn Florian Frank François Friedrich Fritz Frédéric
Gabriel Gary Gaël Geoffrey Georg George Georges Gerald Gerhard Gilbert Gilles Giovanni Glenn
Gottfried Graham Gregor Gregory Grégoire Guido Guillaume Gunther Gustav Gérard Günter Hannes Hans
Harald Harry Hartmut Hassan Heinrich Heinz Helmut Henri Henry Herbert Hermann Hervé Holger Horst
Hubert Hugo Ian Igor Ingo Ivan Jack Jacob Jacques Jakob James Jason Jean Jeffrey Jens Jerome Joachim
Jochen Joel Johann Johannes John Jonas Josef Joseph Jost José Juan Jules Julian Julien Justin Jérémy
Jérôme Jörg Jürgen Karl Kenji Kenneth Kevin Kilian Klaus Konrad Korbinian Kurt Lars Laurent Leo Leon
Leonard Leonhard Leopold Lorenz Lothar Louis Luc Luca Ludwig Luigi Lukas Lutz Léo Magnus Malcolm
Manfred Marc Marcel Marco Marcus Mario Marius Markus Martin Mathieu Matthew Matthias Maurice Max
Maxime Maximilian Mehmet Michael Michel Miguel Mirko Moritz Mustafa Nathan Neil Nicholas Nick
Nicolas Nigel Niklas Nils Noah Norbert Olaf Oliver Olivier Omar Oskar Oswald Otto Paolo Pascal
Patrice Patrick Paul Pavel Pepe Peter Philip Philipp Philippe Pierre Piotr Quentin Rainer Ralf
Raphaël Raymond Reinhard Reinhold René Richard Robert Roger Rolf Romain Ronald Ruben Rudolf Rupert
Ryan Rémi Rüdiger Samuel Sebastian Serge Sergio Siegfried Silas Simon Stanley Stefan Stephen Steven
Stuart Stéphane Sven Sylvain Sébastien Thibault Thierry Thomas Thorsten Théo Tim Timothy Tobias
Tomasz Tony Torsten Tristan Ulrich Uwe Valentin Veit Victor Vincent Vladimir Volker Waldemar Walter
Wendelin Werner Wilhelm William Wolfgang Wolfram Xavier Yannick Yusuf Yves Étienne
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


class NameWords(NamedTuple):
    """Words around names in a language.

    titles: words before a name.
    not_names: words with a capital that are no names.
    particles: small words within names.
    """

    titles: Set[str]
    not_names: Set[str]
    particles: Set[str]


@cache
def name_words(language: str) -> NameWords:
    """Return the words around names in a language."""
    rules = rules_of(language)
    titles = TITLES | rules.own_title_words
    not_names = NOT_NAMES | titles | (rules.nouns.pronouns if rules.nouns else frozenset())
    return NameWords(titles, not_names, rules.name_particles | (PARTICLES - rules.own_particles))
