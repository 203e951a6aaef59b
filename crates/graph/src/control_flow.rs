//! What the runtime must know of an op's part in control flow and in transfers.

/// The part that an op plays for the executor and the passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeClass {
    /// Nothing special.
    Plain,
    /// `Switch`, `RefSwitch`, `_SwitchN`: leaves outputs dead.
    Switch,
    /// `Merge`, `RefMerge`: runs when the first live input arrives.
    Merge,
    /// `Enter`, `RefEnter`: passes its input into a frame.
    Enter,
    /// `Exit`, `RefExit`: passes its input out of a frame.
    Exit,
    /// `NextIteration`, `RefNextIteration`: passes its input to the next iteration.
    NextIteration,
    /// `LoopCond`.
    LoopCond,
    /// `ControlTrigger`: runs even when its inputs are dead.
    ControlTrigger,
    /// `_Send`, `_HostSend`: passes on dead inputs.
    Send,
    /// `_Recv`, `_HostRecv`.
    Recv,
}

impl NodeClass {
    /// Returns the part that an op plays.
    pub fn of(op: &str) -> NodeClass {
        match op {
            "Switch" | "RefSwitch" | "_SwitchN" => NodeClass::Switch,
            "Merge" | "RefMerge" => NodeClass::Merge,
            "Enter" | "RefEnter" => NodeClass::Enter,
            "Exit" | "RefExit" => NodeClass::Exit,
            "NextIteration" | "RefNextIteration" => NodeClass::NextIteration,
            "LoopCond" => NodeClass::LoopCond,
            "ControlTrigger" => NodeClass::ControlTrigger,
            "_Send" | "_HostSend" => NodeClass::Send,
            "_Recv" | "_HostRecv" => NodeClass::Recv,
            _ => NodeClass::Plain,
        }
    }
}
