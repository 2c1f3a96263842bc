//! Error numbers of the system (errno(3)), for [`raw_os_error`](std::io::Error::raw_os_error).

pub use libc::{
    EACCES, EADDRINUSE, EBADF, EBADMSG, EBUSY, ECHILD, EDQUOT, EEXIST, EINTR, EINVAL, EIO, EISDIR,
    ELOOP, EMFILE, EMLINK, ENAMETOOLONG, ENOENT, ENOSPC, ENOSYS, ENOTDIR, ENOTEMPTY, EOPNOTSUPP,
    EPERM, EREMOTEIO, ESTALE, ETOOMANYREFS, EUCLEAN,
};

macro_rules! names {
    ($($name:ident)*) => {
        /// The name of an error of file operations, for example `ENOENT`.
        pub fn name(number: i32) -> Option<&'static str> {
            match number {
                $(libc::$name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF
    ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST EXDEV
    ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG
    ENOLCK ENOSYS ENOTEMPTY ELOOP EOVERFLOW EOPNOTSUPP EDQUOT ESTALE
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn names_of_errors() {
        assert_eq!(name(super::ENOENT), Some("ENOENT"));
        assert_eq!(name(-1), None);
    }
}
