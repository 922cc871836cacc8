//! Sends a deadly signal to one process of each victim.

blackstart_sdk::register!(fault: blackstart_fault_core::process_kill::Fault);
