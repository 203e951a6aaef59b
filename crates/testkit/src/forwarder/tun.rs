//! TUN devices: network interfaces whose packets a program reads and writes.

use rustix::ioctl::{IntegerSetter, Opcode, Setter, ioctl};
use std::fs::File;

/// The request that sets a device's name and kind; `_IOW('T', 202, int)`.
const TUNSETIFF: Opcode = 0x4004_54ca;

/// The request that sets which unfinished packets the program accepts; `_IOW('T', 208, unsigned int)`.
const TUNSETOFFLOAD: Opcode = 0x4004_54d0;

/// IP packets, without a header of the device.
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;

/// Every packet begins with [`OFFLOAD_HEADER_BYTES`] that describe the remaining work.
const IFF_VNET_HDR: u16 = 0x4000;

/// Checksums are left to the other end, and so is the segmentation of TCP over IPv4 and IPv6.
const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;
const TUN_F_TSO6: usize = 0x04;

/// The length of the header before each packet of a device with offload.
pub const OFFLOAD_HEADER_BYTES: usize = 10;

/// The longest name of an interface.
const NAME_BYTES_MAX: usize = 15;

/// The kernel's `struct ifreq`, as far as `TUNSETIFF` reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES_MAX + 1],
    flags: u16,
    rest: [u8; 22],
}

/// Creates a device in the network namespace of the calling thread. It is removed when the file is closed. With offload, the kernel
/// passes on up to 64 kB of a TCP connection at once, so that a program can forward more in the same time.
pub fn open(name: &str, has_offload: bool) -> std::io::Result<File> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let message = format!("a device's name has 1 to {NAME_BYTES_MAX} bytes, not `{name}`");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, message));
    }
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    let flags = IFF_TUN | IFF_NO_PI | if has_offload { IFF_VNET_HDR } else { 0 };
    let mut request = InterfaceRequest { name: [0; NAME_BYTES_MAX + 1], flags, rest: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the opcode reads a `struct ifreq`, which has the size and layout of `InterfaceRequest`, and keeps no pointer to it.
    unsafe { ioctl(&file, Setter::<TUNSETIFF, InterfaceRequest>::new(request)) }?;
    if has_offload {
        let left_undone = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
        // SAFETY: the opcode takes a number by value.
        unsafe { ioctl(&file, IntegerSetter::<TUNSETOFFLOAD>::new_usize(left_undone)) }?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_has_the_size_of_the_kernels() {
        assert_eq!(std::mem::size_of::<InterfaceRequest>(), 40);
        assert_eq!(std::mem::offset_of!(InterfaceRequest, flags), 16);
    }

    #[test]
    fn a_name_that_no_device_may_have_is_refused() {
        for name in ["", "a-name-of-sixteen"] {
            assert_eq!(open(name, false).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
        }
    }
}
