"""Examples by their number: from a number to a place in the store, to an example, a packed row, a tf.data.Dataset."""
