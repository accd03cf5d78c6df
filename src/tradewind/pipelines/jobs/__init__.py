"""Ready-made jobs: archive, replay, mirror, audit, compact.

Owns what each does and how it verifies its result. They run on the same engine as pipelines; a job
that follows a stream is a pipeline without a file.
"""
