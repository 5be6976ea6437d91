#pragma once

// The tree of a parsed template, with what the resolver (scope.h) adds to it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/text/jinja/runtime.h"
#include "common/text/jinja/value.h"

namespace penstock::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// Where a variable lives: so many activations outwards, then this slot.
struct VarRef {
  int hops = 0;
  int slot = -1;
};

// What happens to a slot when a scope is entered.
struct SlotLoad {
  enum class Action { kResolve, kAlias, kUndefined };
  Action action = Action::kUndefined;
  int slot = 0;
  std::string name;  // kResolve
  VarRef from;       // kAlias
};
using Scope = std::vector<SlotLoad>;

enum class ExprKind : uint8_t {
  kData,  // text between tags
  kConst,
  kName,
  kNamespaceRef,  // name.attribute as a target of set
  kTuple,
  kList,
  kDict,         // items: key, value, key, value ...
  kConditional,  // target ? items[0] : items[1] (may be null)
  kFilter,       // target | name(items...); target is null in filter blocks
  kTest,
  kCall,     // target(items...)
  kGetItem,  // target[items[0]]
  kGetAttribute,
  kSlice,  // items: start, stop, step (may be null)
  kConcat,
  kCompare,     // target ops[0] items[0] ops[1] items[1] ...
  kArithmetic,  // items[0] ops[0] items[1]
  kAnd,
  kOr,
  kNot,
  kNegative,
  kPositive,
};

enum class NameUse : uint8_t { kLoad, kStore, kParameter };

struct Expr {
  ExprKind kind;
  int line = 0;
  int column = 0;
  int height = 1;  // of the subtree
  NameUse use = NameUse::kLoad;
  // -1 ** x: jinja2 writes a folded negative number without brackets, so that Python reads
  // -(1 ** x). Templates see it, hence so do ours.
  bool minus_of_power = false;
  std::string name;
  std::string attribute;
  Value value;
  ExprPtr target;
  std::vector<ExprPtr> items;
  std::vector<Operator> ops;
  std::vector<std::pair<std::string, ExprPtr>> named;  // keyword arguments
  ExprPtr more_positional;                             // *args
  ExprPtr more_named;                                  // **kwargs

  // Set by the resolver.
  VarRef ref;
  Filter filter = nullptr;
  Test test = nullptr;
};

enum class StmtKind : uint8_t {
  kOutput,
  kFor,
  kIf,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kSet,
  kSetBlock,
  kBlock,
  kScope,
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind;
  int line = 0;
  int column = 0;
  std::string name;  // macro, block
  ExprPtr target;    // for, set
  ExprPtr expr;      // iterated, condition, value, call, filter
  ExprPtr test;      // for ... if
  bool recursive = false;
  std::vector<ExprPtr> nodes;       // output, with's values
  std::vector<ExprPtr> parameters;  // macro, call, with's targets
  std::vector<ExprPtr> defaults;    // of the last parameters
  Body body;
  Body otherwise;                 // else
  std::vector<StmtPtr> branches;  // elif

  // Set by the resolver.
  VarRef ref;   // of the macro's name
  Scope scope;  // entered with the body
  Scope test_scope, else_scope;
  int num_slots = 0;     // of the function that a macro, block or recursive loop is
  int test_slots = 0;    // of the function that filters the loop
  ExprPtr test_target;   // the target again, in that function
  VarRef loop_ref;       // `loop`; slot -1 when the body does not use it
  int caller_slot = -1;  // macro's special variables
  int kwargs_slot = -1;
  int varargs_slot = -1;
  std::vector<int> parameter_slots;
  bool has_caller_parameter = false;
  // Names set here that become visible to macros and blocks, with their variables.
  std::vector<std::pair<std::string, VarRef>> exported;
  std::vector<VarRef> namespaces;  // must be namespaces before set runs
};

}  // namespace penstock::jinja
