"""What jobs share that write a folder shard by shard."""
