//! Caps what each victim sends or receives.

blackstart_sdk::register!(fault: blackstart_fault_core::network_bandwidth::Fault);
