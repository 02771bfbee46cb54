"""Which example comes when: plain integers and NumPy, before any graph is built."""
