//! Loses a share of the packets of each victim.

blackstart_sdk::register!(fault: blackstart_fault_core::network_loss::Fault);
