"""The folder of a stream as a whole: opening, recovering, writing, committing, rewriting."""
