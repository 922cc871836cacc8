//! Kills one process of each victim and caps what the victim receives while it starts again.

blackstart_sdk::register!(fault: blackstart_fault_core::slow_weights::SlowWeights);
