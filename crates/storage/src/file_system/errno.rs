//! From the operating system's errors to TensorFlow's codes.

use std::io;
use tensor::{Code, Status};

/// Makes the error for a failed operation on `path`: `PATH; No such file or directory`, with the code of its cause.
///
/// An error that carries a [`Status`] already, because it came through an `io` trait of ours, stays as it is.
pub fn status_from_io(path: &str, error: &io::Error) -> Status {
    if let Some(status) = error.get_ref().and_then(|inner| inner.downcast_ref::<Status>()) {
        return status.clone();
    }
    let code = match error.raw_os_error() {
        Some(number) => code_from_errno(number),
        None => code_from_kind(error.kind()),
    };
    let text = error.to_string();
    // TensorFlow prints what `strerror` says, without the number that Rust adds.
    let reason = text.rfind(" (os error").map_or(text.as_str(), |end| &text[..end]);
    Status::new(code, format!("{path}; {reason}"))
}

fn code_from_errno(number: i32) -> Code {
    use libc::*;
    match number {
        EINVAL | ENAMETOOLONG | E2BIG | EDOM | EFAULT | EILSEQ | ENOTTY | ESPIPE => Code::InvalidArgument,
        ETIMEDOUT => Code::DeadlineExceeded,
        ENODEV | ENOENT | ENXIO | ESRCH => Code::NotFound,
        EEXIST | EALREADY => Code::AlreadyExists,
        EPERM | EACCES | EROFS => Code::PermissionDenied,
        ENOTEMPTY | EISDIR | ENOTDIR | EBADF | EBUSY | EPIPE | ETXTBSY => Code::FailedPrecondition,
        ENOSPC | EDQUOT | EMFILE | EMLINK | ENFILE | ENOBUFS | ENOMEM => Code::ResourceExhausted,
        EFBIG | EOVERFLOW | ERANGE => Code::OutOfRange,
        ENOSYS | ENOTSUP | EXDEV => Code::Unimplemented,
        EAGAIN | EINTR | ECONNREFUSED | ECONNABORTED | ECONNRESET | EHOSTUNREACH | ENETDOWN | ENETUNREACH | ENOLCK => {
            Code::Unavailable
        }
        EDEADLK | ESTALE => Code::Aborted,
        ECANCELED => Code::Cancelled,
        _ => Code::Unknown,
    }
}

fn code_from_kind(kind: io::ErrorKind) -> Code {
    match kind {
        io::ErrorKind::InvalidInput => Code::InvalidArgument,
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Code::DataLoss,
        io::ErrorKind::OutOfMemory => Code::ResourceExhausted,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_texts() {
        let check = |number, code, text: &str| {
            let status = status_from_io("/x", &io::Error::from_raw_os_error(number));
            assert_eq!((status.code(), status.message()), (code, text));
        };
        check(libc::ENOENT, Code::NotFound, "/x; No such file or directory");
        check(libc::EACCES, Code::PermissionDenied, "/x; Permission denied");
        check(libc::EROFS, Code::PermissionDenied, "/x; Read-only file system");
        check(libc::ENOSPC, Code::ResourceExhausted, "/x; No space left on device");
        check(libc::EISDIR, Code::FailedPrecondition, "/x; Is a directory");
        check(libc::EIO, Code::Unknown, "/x; Input/output error");
    }

    #[test]
    fn a_status_passes_through() {
        let status = Status::data_loss("bad");
        assert_eq!(status_from_io("/x", &io::Error::from(status.clone())), status);
    }
}
