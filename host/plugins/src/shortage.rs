//! Telling a machine that has no memory (or open files) left from a plugin that is at fault.

use crate::limits::MAX_TEXT_BYTES;
use crate::text::shown;

/// What the machine lacked, if that is what an error of the engine says: the system refused memory,
/// address space, a thread or an open file.
pub(crate) fn of(error: &wasmtime::Error) -> Option<String> {
    let text = || shown(&format!("{error:#}"), MAX_TEXT_BYTES);
    if error.downcast_ref::<wasmtime::OutOfMemory>().is_some() {
        return Some(text());
    }
    error.chain().any(refused).then(text)
}

fn refused(cause: &(dyn std::error::Error + 'static)) -> bool {
    use rustix::io::Errno;
    // EAGAIN is what a limit on threads or locked memory says. A plugin's memory is a file too.
    let lack =
        |errno: Errno| [Errno::NOMEM, Errno::AGAIN, Errno::MFILE, Errno::NFILE].contains(&errno);
    if let Some(errno) = cause.downcast_ref::<Errno>() {
        return lack(*errno);
    }
    cause
        .downcast_ref::<std::io::Error>()
        .is_some_and(|e| Errno::from_io_error(e).is_some_and(lack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_system_refused_is_a_shortage() {
        let wrapped =
            |e: std::io::Error| wasmtime::Error::from(e).context("mmap failed to reserve");
        let found = of(&wrapped(rustix::io::Errno::NOMEM.into())).unwrap();
        assert!(found.contains("mmap failed to reserve"), "{found}");
        assert_eq!(of(&wrapped(rustix::io::Errno::NOENT.into())), None);
        for lack in [rustix::io::Errno::NOMEM, rustix::io::Errno::MFILE] {
            assert!(of(&wasmtime::Error::from(lack)).is_some(), "{lack}");
        }
        // A plugin's own words are none.
        assert_eq!(of(&wasmtime::Error::msg("Cannot allocate memory")), None);
    }
}
