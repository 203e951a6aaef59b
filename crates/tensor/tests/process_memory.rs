//! The account of the process, in a process of its own.

use tensor::{Buffer, Code, DType, Recycler, Shape, Tensor, memory_limit, memory_state, set_memory_limit};

#[test]
fn the_process_has_a_limit_and_gives_spare_blocks_back_before_it_refuses() {
    assert!(memory_limit() > 0, "there is a limit without being asked");
    set_memory_limit(100 << 20);
    let before = memory_state().process.used_bytes;
    let blocks: Vec<Buffer> = (0..15).map(|_| Buffer::new(4 << 20).unwrap()).collect();
    drop(blocks);
    assert_eq!(memory_state().process.used_bytes, before);
    assert!(Recycler::stats().1 > 0, "what was given back waits to be used again");
    // It fits only without what waits.
    let large = Buffer::new(90 << 20).unwrap();
    assert_eq!(Recycler::stats().1, 0);
    let status = Tensor::zeros(DType::Float, Shape::vector(1 << 40)).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("shape[1099511627776] and type float"), "{status}");
    let status = Buffer::new(30 << 20).err().unwrap();
    assert!(status.message().contains("the process uses") && status.message().contains("104857600"), "{status}");
    // What is there already and returns no `Result` is taken all the same, and whole.
    let values = vec![1.5f32; 8 << 20];
    assert_eq!(Tensor::vector(&values).as_slice::<f32>().unwrap(), values);
    assert_eq!(Tensor::scalar(2.5f64).to_scalar::<f64>(), Ok(2.5));
    drop(large);
    assert_eq!(memory_state().process.used_bytes, before);
    assert!(Buffer::new(30 << 20).is_ok());
}
