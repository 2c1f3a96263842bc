//! Error numbers of the system (errno(3)), for [`raw_os_error`](std::io::Error::raw_os_error).

pub use libc::{
    EACCES, EADDRINUSE, EBADMSG, EBUSY, ECHILD, EDQUOT, EEXIST, EINTR, EINVAL, EIO, EISDIR, ELOOP,
    EMLINK, ENAMETOOLONG, ENOENT, ENOSPC, ENOSYS, ENOTDIR, ENOTEMPTY, EOPNOTSUPP, EPERM, EREMOTEIO,
    ESTALE, ETOOMANYREFS, EUCLEAN,
};
