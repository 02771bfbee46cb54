"""How TensorFlow reads the functions of this package."""

import tensorflow as tf

# For functions that make or trace graphs, and what they call: take them as they are written. TensorFlow would rewrite the
# Python of each function that tf.data traces, so that `if` and `for` may ask tensors (autograph), which takes most of the
# time in which a pipeline is built. None here asks a tensor. What a user may have written, a source's or a vocabulary's
# functions, is left to TensorFlow.
no_autograph = tf.autograph.experimental.do_not_convert
