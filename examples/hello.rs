//! The hello world of distributed TensorFlow: a server that is a cluster of its own, and a session on it.

use ferroflow::distributed::create_local_server;
use ferroflow::{Graph, Result, Session, Tensor};

pub fn hello() -> Result<String> {
    let g = Graph::new();
    let c = g.constant_tensor(&Tensor::string("Hello, distributed TensorFlow!"));
    let server = create_local_server()?;
    let session = Session::connect(&g, &server.target())?;
    let value = session.run(&[&c])?.remove(0);
    session.close()?;
    Ok(String::from_utf8_lossy(&value.strings()?[0]).into_owned())
}

fn main() -> Result<()> {
    println!("{}", hello()?);
    Ok(())
}
