//! Removes the container of each victim and makes it anew.

blackstart_sdk::register!(fault: blackstart_fault_core::container_recreate::Fault);
