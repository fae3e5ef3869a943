"""The annotated tour: the source of the core as pages, its notes beside its code.

Nothing is imported that is shown: files are read, parsed (`ast`) and coloured (pygments).
"""
