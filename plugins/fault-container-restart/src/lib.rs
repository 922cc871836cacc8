//! Has the container engine restart the container of each victim.

blackstart_sdk::register!(fault: blackstart_fault_core::container_restart::Fault);
