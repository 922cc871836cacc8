//! G3: the black-holed victim fell silent, it did not refuse.
