//! G6: the service was healthy before the fault.
