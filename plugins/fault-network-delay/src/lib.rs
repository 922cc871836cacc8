//! Holds back what each victim sends.

blackstart_sdk::register!(fault: blackstart_fault_core::network_delay::Fault);
