//! Takes the container of each victim off its networks.

blackstart_sdk::register!(fault: blackstart_fault_core::network_disconnect::Fault);
