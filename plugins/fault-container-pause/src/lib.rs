//! Pauses the container of each victim.

blackstart_sdk::register!(fault: blackstart_fault_core::container_pause::Fault);
