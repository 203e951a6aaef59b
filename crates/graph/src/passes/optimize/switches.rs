//! [`OptimizeSwitches`]: the parts of optimization that a session's config enables.

use proto::optimizer_options::Level;
use proto::rewriter_config::Toggle;
use proto::{ConfigProto, RewriterConfig};

/// The parts of optimization, each on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptimizeSwitches {
    /// Constant folding.
    pub fold: bool,
    /// Merging of equal nodes.
    pub share: bool,
    /// Removal of nodes that return their input.
    pub bypass: bool,
    /// Fusion of products with their bias and activation.
    pub fuse_products: bool,
    /// Fusion of chains of element-wise ops.
    pub fuse_elementwise: bool,
}

impl OptimizeSwitches {
    /// Everything on.
    pub const ALL: OptimizeSwitches =
        OptimizeSwitches { fold: true, share: true, bypass: true, fuse_products: true, fuse_elementwise: true };

    /// Everything off.
    pub const NONE: OptimizeSwitches =
        OptimizeSwitches { fold: false, share: false, bypass: false, fuse_products: false, fuse_elementwise: false };

    /// Returns the parts that a session's config enables.
    ///
    /// The level `L0` of `optimizer_options` turns everything off except what its flags enable. `rewrite_options` turn off single
    /// parts: `constant_folding`, `common_subgraph_elimination`, `dependency_optimization` (nodes that return their input),
    /// `remapping` (products), and `arithmetic_optimization` (chains of element-wise ops); `disable_meta_optimizer` turns off the
    /// last three.
    pub fn from_config(config: &ConfigProto) -> OptimizeSwitches {
        let Some(graph_options) = &config.graph_options else { return OptimizeSwitches::ALL };
        let mut switches = OptimizeSwitches::ALL;
        if let Some(options) = &graph_options.optimizer_options
            && options.opt_level == Level::L0 as i32
        {
            switches = OptimizeSwitches {
                fold: options.do_constant_folding,
                share: options.do_common_subexpression_elimination,
                ..OptimizeSwitches::NONE
            };
        }
        match &graph_options.rewrite_options {
            Some(options) => switches.without(options),
            None => switches,
        }
    }

    fn without(self, options: &RewriterConfig) -> OptimizeSwitches {
        let is_on = |toggle: i32| toggle != Toggle::Off as i32;
        let rewrites = !options.disable_meta_optimizer;
        OptimizeSwitches {
            fold: self.fold && is_on(options.constant_folding),
            share: self.share && is_on(options.common_subgraph_elimination),
            bypass: self.bypass && rewrites && is_on(options.dependency_optimization),
            fuse_products: self.fuse_products && rewrites && is_on(options.remapping),
            fuse_elementwise: self.fuse_elementwise && rewrites && is_on(options.arithmetic_optimization),
        }
    }
}

impl Default for OptimizeSwitches {
    fn default() -> OptimizeSwitches {
        OptimizeSwitches::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{GraphOptions, OptimizerOptions};

    fn switches(optimizer: OptimizerOptions, rewrite: RewriterConfig) -> OptimizeSwitches {
        let graph_options = Some(GraphOptions {
            optimizer_options: Some(optimizer),
            rewrite_options: Some(rewrite),
            ..Default::default()
        });
        OptimizeSwitches::from_config(&ConfigProto { graph_options, ..Default::default() })
    }

    #[test]
    fn everything_is_on_unless_told_otherwise() {
        assert_eq!(OptimizeSwitches::from_config(&ConfigProto::default()), OptimizeSwitches::ALL);
        assert_eq!(switches(Default::default(), Default::default()), OptimizeSwitches::ALL);
    }

    #[test]
    fn the_lowest_level_leaves_what_is_asked_for() {
        let lowest = OptimizerOptions { opt_level: Level::L0 as i32, ..Default::default() };
        assert_eq!(switches(lowest, Default::default()), OptimizeSwitches::NONE);
        let folds = OptimizerOptions { do_constant_folding: true, ..lowest };
        assert_eq!(switches(folds, Default::default()), OptimizeSwitches { fold: true, ..OptimizeSwitches::NONE });
    }

    #[test]
    fn single_rewrites_can_be_turned_off() {
        let off = Toggle::Off as i32;
        let rewrite = RewriterConfig { arithmetic_optimization: off, ..Default::default() };
        let all = OptimizeSwitches::ALL;
        assert_eq!(switches(Default::default(), rewrite), OptimizeSwitches { fuse_elementwise: false, ..all });
        let rewrite = RewriterConfig { disable_meta_optimizer: true, ..Default::default() };
        assert_eq!(
            switches(Default::default(), rewrite),
            OptimizeSwitches { fold: true, share: true, ..OptimizeSwitches::NONE }
        );
    }
}
