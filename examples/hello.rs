//! The hello world of distributed TensorFlow: a server that is a cluster of its own, and a session on it.
use ferroflow::{Graph, Session, distributed::create_local_server};

pub fn main() -> ferroflow::Result<()> {
    let (g, server) = (Graph::new(), create_local_server()?);
    let hello = g.constant("Hello, distributed TensorFlow!");
    println!("{}", Session::connect(&g, &server.target())?.eval::<String>(&hello)?);
    Ok(())
}
