//! Stops one process of each victim with SIGSTOP; the host lets it go on with SIGCONT.

blackstart_sdk::register!(fault: blackstart_fault_core::process_freeze::Fault);
