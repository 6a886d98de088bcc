"""The jobs of the main job between the sources and the report, in `jobs.run.JOBS`'s order."""
