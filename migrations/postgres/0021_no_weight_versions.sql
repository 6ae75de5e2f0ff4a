-- Versions of a job's weights are the training run's (training_jobs), not what engines named.
DROP TABLE weight_versions;
