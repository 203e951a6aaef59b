//! The passes that a master runs over a graph: graph in, graphs out.
