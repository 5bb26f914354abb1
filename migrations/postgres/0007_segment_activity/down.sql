DROP TABLE segment_activity;
