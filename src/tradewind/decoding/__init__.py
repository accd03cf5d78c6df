"""Payloads as columns: decoders over Arrow batches, chosen by name.

`decoder_contract` is what a decoder promises, `decoder_registry` opens one by its name.
Nothing here knows Spark, pipelines or tables.
"""
