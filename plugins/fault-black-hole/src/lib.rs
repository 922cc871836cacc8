//! Drops every packet of each victim, both ways.

blackstart_sdk::register!(fault: blackstart_fault_core::black_hole::Fault);
