//! Accounts of sessions. That of the process has a test of its own, in a process of its own.

use super::*;
use crate::{Buffer, Code, DType, Shape, Tensor};

#[test]
fn what_a_session_takes_comes_back_to_the_byte_on_whatever_thread_it_ends() {
    let account = Account::of("across threads");
    let taken: Vec<Buffer> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..100)
            .map(|index| {
                let account = &account;
                scope.spawn(move || {
                    let _scope = account.enter();
                    // Small, recycled, and large enough to be checked.
                    [7 * index, 40 << 10, 2 << 20].map(|len| Buffer::new(len).unwrap())
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let used = account.state().used_bytes;
    assert!(used >= 100 * ((2 << 20) + (40 << 10)), "{used}");
    let (here, there) = taken.into_iter().enumerate().partition::<Vec<_>, _>(|(index, _)| index % 2 == 0);
    std::thread::spawn(move || drop(there)).join().unwrap();
    drop(here);
    assert_eq!(account.state().used_bytes, 0);
}

#[test]
fn what_does_not_fit_names_the_session_and_the_numbers_and_another_session_goes_on() {
    let (narrow, wide) = (Account::of("narrow"), Account::of("wide"));
    narrow.set_limit(3 << 20);
    let _scope = narrow.enter();
    let kept = Tensor::zeros(DType::UInt8, Shape::vector(2 << 20)).unwrap();
    let status = Tensor::new(DType::Float, Shape::new(&[512, 1024]).unwrap()).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let number = narrow.state().session;
    for part in [
        "OOM when allocating tensor with shape[512,1024] and type float",
        &format!("session {number} uses {} of at most 3145728 bytes", narrow.state().used_bytes),
    ] {
        assert!(status.message().contains(part), "{part}: {status}");
    }
    {
        let _scope = wide.enter();
        assert!(Tensor::new(DType::Float, Shape::new(&[512, 1024]).unwrap()).is_ok());
    }
    // The scope of before is back.
    assert!(Buffer::new(2 << 20).is_err());
    drop(kept);
    assert!(Buffer::new(2 << 20).is_ok());
    assert_eq!((narrow.state().used_bytes, wide.state().used_bytes), (0, 0));
}

#[test]
fn small_blocks_are_refused_soon_after_the_limit() {
    let account = Account::of("small blocks");
    account.set_limit(1 << 20);
    let _scope = account.enter();
    let mut taken = Vec::new();
    while let Ok(buffer) = Buffer::new(1000) {
        taken.push(buffer);
        assert!(account.state().used_bytes <= (1 << 20) + 2 * CHECKED_BYTES);
    }
    // What is there already is taken all the same, and is what it should be.
    assert_eq!(Tensor::vector(&[7i32; 300_000]).as_slice::<i32>().unwrap(), &[7; 300_000]);
    assert!(Tensor::from_slice(&[1 << 19], &vec![0i32; 1 << 19]).is_err());
    taken.clear();
    assert_eq!(account.state().used_bytes, 0);
}

#[test]
fn strings_and_variants_count_with_what_they_hold() {
    let account = Account::of("strings");
    account.set_limit(8 << 20);
    let _scope = account.enter();
    let text = bytes::Bytes::from(vec![b'x'; 3 << 20]);
    let one = Tensor::from_strings(Shape::vector(2), vec![text.clone(), text.clone()]).unwrap();
    assert!(account.state().used_bytes >= 6 << 20);
    assert!(Tensor::from_strings(Shape::vector(1), vec![text]).is_err());
    let many = Shape::vector(1 << 30);
    assert!(Tensor::zeros(DType::String, many.clone()).unwrap_err().message().contains("OOM"));
    assert!(Tensor::zeros(DType::Variant, many).is_err());
    drop(one);
    assert_eq!(account.state().used_bytes, 0);
}

#[test]
fn what_outlives_its_session_stays_in_its_account() {
    let account = Account::of("outlived");
    let number = account.state().session;
    let variable = {
        let _scope = account.enter();
        Buffer::new(5 << 20).unwrap()
    };
    let again = Account::of("outlived");
    assert_eq!(again.state().session, number);
    drop((account, again));
    let find = || memory_state().sessions.into_iter().find(|state| state.session == number);
    let left = find().unwrap();
    assert!(left.is_closed && left.used_bytes >= 5 << 20);
    // Somebody of the same name is somebody else.
    assert_ne!(Account::of("outlived").state().session, number);
    drop(variable);
    assert_eq!(find(), None);
}

#[test]
fn a_tensor_can_change_its_account() {
    let (from, to) = (Account::of("from"), Account::of("to"));
    let mut tensor = {
        let _scope = from.enter();
        Tensor::vector(&[1f32; 1000])
    };
    let bytes = from.state().used_bytes;
    let shared = tensor.clone();
    tensor.charge_to(&to).unwrap();
    assert_eq!((from.state().used_bytes, to.state().used_bytes), (bytes, 0));
    drop(shared);
    tensor.charge_to(&to).unwrap();
    assert_eq!((from.state().used_bytes, to.state().used_bytes), (0, bytes));
    drop(tensor);
    assert_eq!(to.state().used_bytes, 0);
    to.set_limit(1 << 20);
    assert!(Tensor::vector(&vec![1f32; 1 << 20]).charge_to(&to).is_err());
    assert_eq!(to.state().used_bytes, 0);
}

#[test]
fn a_charge_grows_and_shrinks() {
    let account = Account::of("charge");
    account.set_limit(4 << 20);
    let _scope = account.enter();
    let mut charge = Charge::default();
    charge.resize(3 << 20).unwrap();
    assert!(charge.resize(6 << 20).is_err());
    assert_eq!(account.state().used_bytes, 3 << 20);
    charge.resize(10).unwrap();
    assert_eq!(account.state().used_bytes, 10);
    drop(charge);
    assert_eq!(account.state().used_bytes, 0);
}
