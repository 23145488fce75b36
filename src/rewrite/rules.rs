//! `rules!`: tables of named rewrite rules, matched by compiled Rust code.
//!
//! ```text
//! add_zero:  Add[x, 0]                                     => x;
//! mod_mod:   Mod(m @ Mod(_, y), =y)                        => m;
//! div_mul:   IDiv(Mul[x, #a], #b) if b != 0 && a % b == 0  => x * (a / b);
//! ```
//!
//! `( )` operands in order, `[ ]` in either order, `(..)` any operands, `=x` the same node again,
//! `#c` an integer or bool literal (bound as `i64`), `%c` any literal (bound as `Const`), a number
//! for that integer literal, `n @ pattern` a name for a matched node, `{Group}(…)` any op of a
//! group. The right side is Rust: a node, a number of the root's dtype, or an `Option` of one,
//! where none means that the rule does not apply. `u` is the root.

use crate::dtype::Const;
use crate::ir::{OpSet, UOp};
use std::sync::atomic::{AtomicU64, Ordering};

/// The types that a right-hand side may have.
pub trait IntoRewrite {
    /// Returns the node that replaces `root`, if any.
    fn rewrite(self, root: &UOp) -> Option<UOp>;
}
impl IntoRewrite for UOp {
    fn rewrite(self, _: &UOp) -> Option<UOp> {
        Some(self)
    }
}
impl IntoRewrite for &UOp {
    fn rewrite(self, _: &UOp) -> Option<UOp> {
        Some(self.clone())
    }
}
impl IntoRewrite for i64 {
    fn rewrite(self, root: &UOp) -> Option<UOp> {
        Some(root.const_like(self))
    }
}
impl IntoRewrite for bool {
    fn rewrite(self, root: &UOp) -> Option<UOp> {
        Some(root.const_like(self))
    }
}
impl IntoRewrite for Const {
    fn rewrite(self, root: &UOp) -> Option<UOp> {
        Some(root.const_like(self))
    }
}
impl<T: IntoRewrite> IntoRewrite for Option<T> {
    fn rewrite(self, root: &UOp) -> Option<UOp> {
        self.and_then(|v| v.rewrite(root))
    }
}

/// The part of a rule that does not depend on its context: for traces, and for the tests that names
/// are unique and that every rule fires.
pub struct RuleInfo {
    /// The name, unique in the crate.
    pub name: &'static str,
    /// The file of the rule.
    pub file: &'static str,
    /// The line of the rule.
    pub line: u32,
    fired: AtomicU64,
}

impl RuleInfo {
    /// Returns the information of a rule, for the macro
    /// [`rules!`](crate::compiler::rewrite::rules).
    pub const fn new(name: &'static str, file: &'static str, line: u32) -> RuleInfo {
        RuleInfo { name, file, line, fired: AtomicU64::new(0) }
    }
    /// Returns the number of times the rule has changed a node in this process.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }
    pub(super) fn count(&self) {
        self.fired.fetch_add(1, Ordering::Relaxed);
    }
}

/// A rewrite rule.
pub struct Rule<C> {
    /// Name and source location.
    pub info: RuleInfo,
    /// The ops that its root may have.
    pub roots: OpSet,
    /// The ops that the root's operands must include, which reject most nodes with one instruction.
    pub needs: OpSet,
    /// The matcher and the replacement.
    pub apply: fn(&UOp, &mut C) -> Option<UOp>,
}

/// Declares a table of rules, in the form that the documentation of the module shows. `when f`
/// after the context is a condition `f(u)` of all rules of the table.
#[macro_export]
#[doc(hidden)]
macro_rules! rules {
    ($(#[$doc:meta])* $vis:vis $set:ident |$u:ident, $cx:ident: $ctx:ty| $(when $when:ident)? {
        $($rules:tt)* }) => {
        $crate::rules!(
            @table [$($when)?] $(#[$doc])* $vis $set |$u, $cx: $ctx| { $($rules)* }
        );
    };
    (@table $when:tt $(#[$doc:meta])* $vis:vis $set:ident |$u:ident, $cx:ident: $ctx:ty| {
        $($(#[$rdoc:meta])* $name:ident: $root:tt $args:tt $(if $g:expr)? => $rhs:expr;)* }) => {
        $(#[$doc])*
        $vis static $set: [
            $crate::compiler::rewrite::Rule<$ctx>;
            { 0 $(+ { let _ = stringify!($name); 1 })* }
        ] = [$($crate::compiler::rewrite::Rule {
            info: $crate::compiler::rewrite::RuleInfo::new(stringify!($name), file!(), line!()),
            roots: $crate::rules!(@roots $root),
            needs: $crate::rules!(
                @kids $crate::compiler::ir::OpSet::NONE; $args
            ),
            apply: $crate::rules!(
                @apply $u, $cx: $ctx, $when, $root $args [$($g)?] $rhs
            ),
        }),*];
    };
    (@apply $u:ident, $cx:ident: $ctx:ty, [$($when:ident)?],
        $root:tt $args:tt [$($g:expr)?] $rhs:expr) => {
        |$u: &$crate::compiler::ir::UOp, $cx: &mut $ctx| -> Option<$crate::compiler::ir::UOp> {
            let _ = &$cx;
            $(if !$when($u) { return None; })?
            $crate::rules!(@m [($u; $root $args)] [] {
                if true $(&& $g)? {
                    let new = $crate::compiler::rewrite::IntoRewrite::rewrite($rhs, $u);
                    if new.is_some() { return new; }
                }
            });
            None
        }
    };
    (@roots {$grp:ident}) => { $crate::compiler::ir::Group::$grp.set() };
    (@roots $op:ident) => { $crate::compiler::ir::OpSet::of($crate::compiler::ir::Op::$op) };
    // Ops that must appear among the direct operands.
    (@kids $acc:expr; ($($a:tt)*)) => { $crate::rules!(@kid $acc; $($a)*) };
    (@kids $acc:expr; [$($a:tt)*]) => { $crate::rules!(@kid $acc; $($a)*) };
    (@kid $acc:expr;) => { $acc };
    (@kid $acc:expr; # $c:ident $($r:tt)*) => {
        $crate::rules!(@need $acc, Const; $($r)*)
    };
    (@kid $acc:expr; % $c:ident $($r:tt)*) => {
        $crate::rules!(@need $acc, Const; $($r)*)
    };
    (@kid $acc:expr; $n:literal $($r:tt)*) => {
        $crate::rules!(@need $acc, Const; $($r)*)
    };
    (@kid $acc:expr; $b:ident @ $op:ident $a:tt $($r:tt)*) => {
        $crate::rules!(@need $acc, $op; $($r)*)
    };
    (@kid $acc:expr; $op:ident ($($a:tt)*) $($r:tt)*) => {
        $crate::rules!(@need $acc, $op; $($r)*)
    };
    (@kid $acc:expr; $op:ident [$($a:tt)*] $($r:tt)*) => {
        $crate::rules!(@need $acc, $op; $($r)*)
    };
    (@kid $acc:expr; $t:tt $($r:tt)*) => { $crate::rules!(@kid $acc; $($r)*) };
    (@need $acc:expr, $op:ident; $($r:tt)*) => {
        $crate::rules!(
            @kid $acc.or($crate::compiler::ir::OpSet::of($crate::compiler::ir::Op::$op)); $($r)*
        )
    };
    // The matcher: a worklist of (node; pattern), the binders so far, and the body to run when the
    // list is empty.
    (@m [] [$($b:ident)*] $body:block) => {
        { #[allow(unused)] let _binders_are_distinct = |$($b: ()),*| (); $body }
    };
    (@m [($u:expr; _) $($w:tt)*] $bs:tt $body:block) => {
        $crate::rules!(@m [$($w)*] $bs $body)
    };
    (@m [($u:expr; = $x:ident) $($w:tt)*] $bs:tt $body:block) => {
        if $u == $x { $crate::rules!(@m [$($w)*] $bs $body) }
    };
    (@m [($u:expr; # $c:ident) $($w:tt)*] [$($b:ident)*] $body:block) => {
        if let Some($c) = $u.as_int() {
            $crate::rules!(@m [$($w)*] [$($b)* $c] $body)
        }
    };
    (@m [($u:expr; % $c:ident) $($w:tt)*] [$($b:ident)*] $body:block) => {
        if let Some($c) = $u.as_const() {
            $crate::rules!(@m [$($w)*] [$($b)* $c] $body)
        }
    };
    (@m [($u:expr; $n:literal) $($w:tt)*] $bs:tt $body:block) => {
        if $u.is_int($n) { $crate::rules!(@m [$($w)*] $bs $body) }
    };
    (@m [($u:expr; $x:ident) $($w:tt)*] [$($b:ident)*] $body:block) => { {
        let $x: &$crate::compiler::ir::UOp = $u;
        let _ = $x;
        $crate::rules!(@m [$($w)*] [$($b)* $x] $body)
    } };
    (@m [($u:expr; $x:ident @ $($p:tt)*) $($w:tt)*] [$($b:ident)*] $body:block) => { {
        let $x: &$crate::compiler::ir::UOp = $u;
        let _ = $x;
        $crate::rules!(@m [($u; $($p)*) $($w)*] [$($b)* $x] $body)
    } };
    (@m [($u:expr; {$grp:ident} $args:tt) $($w:tt)*] $bs:tt $body:block) => {
        if const { $crate::compiler::ir::Group::$grp.set() }.has($u.op()) {
            $crate::rules!(@args $u; $args [$($w)*] $bs $body)
        }
    };
    (@m [($u:expr; $op:ident $args:tt) $($w:tt)*] $bs:tt $body:block) => {
        if $u.op() == $crate::compiler::ir::Op::$op {
            const {
                assert!(
                    $crate::compiler::ir::Op::$op
                        .takes($crate::rules!(@n $args)),
                    concat!("wrong number of operands for ", stringify!($op))
                )
            }
            $crate::rules!(@args $u; $args [$($w)*] $bs $body)
        }
    };
    // Operand count of a pattern; usize::MAX for `(..)`.
    (@n (..)) => { usize::MAX };
    (@n ($($a:tt)*)) => { $crate::rules!(@nn 0; [] $($a)*,) };
    (@n [$($a:tt)*]) => { $crate::rules!(@nn 0; [] $($a)*,) };
    (@nn $k:expr; []) => { $k };
    (@nn $k:expr; [] ,) => { $k };
    (@nn $k:expr; [x] , $($r:tt)*) => { $crate::rules!(@nn $k + 1; [] $($r)*) };
    (@nn $k:expr; $s:tt $t:tt $($r:tt)*) => {
        $crate::rules!(@nn $k; [x] $($r)*)
    };
    (@args $u:expr; (..) [$($w:tt)*] $bs:tt $body:block) => {
        $crate::rules!(@m [$($w)*] $bs $body)
    };
    (@args $u:expr; ($($a:tt)*) $w:tt $bs:tt $body:block) => {
        $crate::rules!(@bind $u.src(); [] [] [] [$($a)*,] $w $bs $body)
    };
    (@args $u:expr; [$($a:tt)*] $w:tt $bs:tt $body:block) => {
        if let [p, q] = $u.src() {
            $crate::rules!(@bind [p, q]; [] [] [] [$($a)*,] $w $bs $body);
            $crate::rules!(@bind [q, p]; [] [] [] [$($a)*,] $w $bs $body);
        }
    };
    // Splits the argument list at commas, giving each argument a fresh (hygienic) temporary.
    (@bind $src:expr; [$($v:ident)*] [$($done:tt)*] [] [] [$($w:tt)*] $bs:tt $body:block) => {
        #[allow(irrefutable_let_patterns, unused_variables)]
        if let [$($v),*] = $src {
            $crate::rules!(@m [$($done)* $($w)*] $bs $body)
        }
    };
    (@bind $src:expr; [$($v:ident)*] [$($done:tt)*] [$($p:tt)+] [, $($rest:tt)*]
        $w:tt $bs:tt $body:block) => {
        $crate::rules!(
            @bind $src; [$($v)* t] [$($done)* (t; $($p)+)] [] [$($rest)*] $w $bs $body
        )
    };
    (@bind $src:expr; $v:tt $done:tt [$($p:tt)*] [$t:tt $($rest:tt)*]
        $w:tt $bs:tt $body:block) => {
        $crate::rules!(@bind $src; $v $done [$($p)* $t] [$($rest)*] $w $bs $body)
    };
}

pub use rules;
