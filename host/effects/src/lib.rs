//! The timeline that executes faults at their instant, brackets them, and undoes them; the watchdog.
