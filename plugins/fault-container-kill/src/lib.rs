//! Has the container engine send a signal to the main process of each victim's container.

blackstart_sdk::register!(fault: blackstart_fault_core::container_kill::Fault);
