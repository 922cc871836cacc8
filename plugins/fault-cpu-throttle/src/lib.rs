//! Caps the processor time of each victim.

blackstart_sdk::register!(fault: blackstart_fault_core::cpu_throttle::Fault);
