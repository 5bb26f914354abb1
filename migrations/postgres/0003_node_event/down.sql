DROP TABLE node_event;
