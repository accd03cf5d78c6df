"""The files of streams, as readers beside a running server see them."""
