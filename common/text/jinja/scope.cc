#include "common/text/jinja/scope.h"

#include <map>
#include <memory>
#include <set>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/lexer.h"

namespace penstock::jinja {
namespace {

// One call's worth of slots: the template, a macro, a block, a recursive loop, a loop's filter.
struct Function {
  Function* parent = nullptr;
  std::map<std::pair<int, std::string>, int> slots;  // by level of the scope and name

  int Slot(int level, const std::string& name) {
    return slots.emplace(std::pair(level, name), static_cast<int>(slots.size())).first->second;
  }
};

struct Ref {
  Function* function = nullptr;
  int slot = -1;
};

// The names of one scope. An `if` has none of its own: what its branches set is merged.
class Symbols {
 public:
  enum class Action { kParameter, kResolve, kAlias, kUndefined };
  struct Load {
    Action action;
    std::string name;
    Ref from;
  };

  Symbols(const Symbols* parent, Function* function)
      : parent_(parent), level_(parent != nullptr ? parent->level_ + 1 : 0), function_(function) {}

  const Ref* Find(const std::string& name) const {
    const auto it = refs_.find(name);
    if (it != refs_.end()) return &it->second;
    return parent_ != nullptr ? parent_->Find(name) : nullptr;
  }

  void AddLoad(const std::string& name) {
    if (Find(name) == nullptr) Define(name, {Action::kResolve, name, {}});
  }

  void AddStore(const std::string& name) {
    stores_.insert(name);
    if (refs_.count(name) > 0) return;
    const Ref* outer = parent_ != nullptr ? parent_->Find(name) : nullptr;
    if (outer != nullptr) {
      Define(name, {Action::kAlias, "", *outer});
    } else {
      Define(name, {Action::kUndefined, "", {}});
    }
  }

  Ref AddParameter(const std::string& name) {
    stores_.insert(name);
    return Define(name, {Action::kParameter, "", {}});
  }

  void MergeBranches(const std::vector<Symbols>& branches) {
    std::set<std::string> stored;
    for (const Symbols& branch : branches) {
      for (const std::string& name : branch.stores_) {
        if (stores_.count(name) == 0) stored.insert(name);
      }
    }
    for (const Symbols& branch : branches) {
      for (const auto& [name, ref] : branch.refs_) refs_[name] = ref;
      for (const auto& [slot, load] : branch.loads_) loads_[slot] = load;
      stores_.insert(branch.stores_.begin(), branch.stores_.end());
    }
    for (const std::string& name : stored) {
      const Ref* target = Find(name);
      CHECK(target != nullptr);
      const Ref* outer = parent_ != nullptr ? parent_->Find(name) : nullptr;
      if (outer != nullptr) {
        loads_[target->slot] = {Action::kAlias, "", *outer};
      } else {
        loads_[target->slot] = {Action::kResolve, name, {}};
      }
    }
  }

  const std::map<int, Load>& loads() const { return loads_; }

 private:
  Ref Define(const std::string& name, Load load) {
    const Ref ref = {function_, function_->Slot(level_, name)};
    refs_[name] = ref;
    loads_[ref.slot] = std::move(load);
    return ref;
  }

  const Symbols* parent_;
  int level_;
  Function* function_;
  std::map<std::string, Ref> refs_;
  std::map<int, Load> loads_;  // by slot of function_
  std::set<std::string> stores_;
};

template <typename F>
void ForEachChild(const Expr& expr, F visit) {
  if (expr.target) visit(*expr.target);
  for (const ExprPtr& item : expr.items) {
    if (item) visit(*item);
  }
  for (const auto& [name, value] : expr.named) visit(*value);
  if (expr.more_positional) visit(*expr.more_positional);
  if (expr.more_named) visit(*expr.more_named);
}

// --- Which names a scope mentions ---

class SymbolVisitor {
 public:
  explicit SymbolVisitor(Symbols* symbols) : symbols_(symbols) {}

  void Visit(const Expr& expr, bool as_parameter = false) {
    if (expr.kind == ExprKind::kName) {
      if (as_parameter || expr.use == NameUse::kParameter) {
        symbols_->AddParameter(expr.name);
      } else if (expr.use == NameUse::kStore) {
        symbols_->AddStore(expr.name);
      } else {
        symbols_->AddLoad(expr.name);
      }
      return;
    }
    if (expr.kind == ExprKind::kNamespaceRef) symbols_->AddLoad(expr.name);
    ForEachChild(expr, [&](const Expr& child) { Visit(child, as_parameter); });
  }
  void Visit(const ExprPtr& expr) {
    if (expr) Visit(*expr);
  }
  void Visit(const std::vector<ExprPtr>& exprs) {
    for (const ExprPtr& expr : exprs) Visit(expr);
  }
  void Visit(const Body& body) {
    for (const StmtPtr& stmt : body) Visit(*stmt);
  }

  void Visit(const Stmt& stmt) {
    switch (stmt.kind) {
      case StmtKind::kOutput:
      case StmtKind::kWith:  // its values; targets and body are a scope of their own
        return Visit(stmt.nodes);
      case StmtKind::kSet:
        Visit(stmt.expr);
        return Visit(stmt.target);
      case StmtKind::kSetBlock:
        return Visit(stmt.target);
      case StmtKind::kFor:
      case StmtKind::kCallBlock:
      case StmtKind::kFilterBlock:
        return Visit(stmt.expr);
      case StmtKind::kMacro:
        return symbols_->AddStore(stmt.name);
      case StmtKind::kIf:
        return VisitIf(stmt);
      default:
        return;
    }
  }

 private:
  void VisitIf(const Stmt& stmt) {
    Visit(stmt.expr);
    Symbols* const outer = symbols_;
    std::vector<Symbols> branches(3, *outer);
    symbols_ = &branches[0];
    Visit(stmt.body);
    symbols_ = &branches[1];
    for (const StmtPtr& branch : stmt.branches) Visit(*branch);
    symbols_ = &branches[2];
    Visit(stmt.otherwise);
    symbols_ = outer;
    symbols_->MergeBranches(branches);
  }

  Symbols* symbols_;
};

// --- Names used before they are set, also inside of macros and loops ---

class UndeclaredScan {
 public:
  explicit UndeclaredScan(std::set<std::string> names) : names_(std::move(names)) {}
  std::set<std::string> Run(const Body& body) {
    Visit(body);
    return std::move(found_);
  }

 private:
  void Visit(const Expr& expr) {
    if (expr.kind == ExprKind::kName) {
      if (expr.use == NameUse::kLoad && names_.count(expr.name) > 0) {
        found_.insert(expr.name);
      } else {
        names_.erase(expr.name);
      }
      return;
    }
    ForEachChild(expr, [&](const Expr& child) { Visit(child); });
  }
  void Visit(const ExprPtr& expr) {
    if (expr) Visit(*expr);
  }
  void Visit(const std::vector<ExprPtr>& exprs) {
    for (const ExprPtr& expr : exprs) Visit(expr);
  }
  void Visit(const Body& body) {
    for (const StmtPtr& stmt : body) Visit(*stmt);
  }
  void Visit(const Stmt& stmt) {
    switch (stmt.kind) {
      case StmtKind::kBlock:
        return;
      case StmtKind::kFilterBlock:
        Visit(stmt.body);
        return Visit(stmt.expr);
      case StmtKind::kWith:
        Visit(stmt.parameters);
        Visit(stmt.nodes);
        return Visit(stmt.body);
      default:
        Visit(stmt.target);
        Visit(stmt.expr);
        Visit(stmt.nodes);
        Visit(stmt.parameters);
        Visit(stmt.defaults);
        Visit(stmt.body);
        for (const StmtPtr& branch : stmt.branches) Visit(*branch);
        Visit(stmt.otherwise);
        return Visit(stmt.test);
    }
  }

  std::set<std::string> names_;
  std::set<std::string> found_;
};

// A target of set or for named `loop`, anywhere below.
const Expr* FindLoopTarget(const Stmt& stmt);

const Expr* FindLoopTarget(const ExprPtr& expr) {
  if (!expr) return nullptr;
  if (expr->kind == ExprKind::kName && expr->use == NameUse::kStore && expr->name == "loop") {
    return expr.get();
  }
  for (const ExprPtr& item : expr->items) {
    if (const Expr* found = FindLoopTarget(item)) return found;
  }
  return nullptr;
}

const Expr* FindLoopTarget(const Body& body) {
  for (const StmtPtr& stmt : body) {
    if (const Expr* found = FindLoopTarget(*stmt)) return found;
  }
  return nullptr;
}

const Expr* FindLoopTarget(const Stmt& stmt) {
  if (const Expr* found = FindLoopTarget(stmt.target)) return found;
  if (const Expr* found = FindLoopTarget(stmt.body)) return found;
  if (const Expr* found = FindLoopTarget(stmt.branches)) return found;
  return FindLoopTarget(stmt.otherwise);
}

ExprPtr CloneTarget(const Expr& expr) {
  auto copy = std::make_unique<Expr>();
  copy->kind = expr.kind;
  copy->line = expr.line;
  copy->column = expr.column;
  copy->use = expr.use;
  copy->name = expr.name;
  for (const ExprPtr& item : expr.items) copy->items.push_back(CloneTarget(*item));
  return copy;
}

// --- The pass itself ---

struct Frame {
  Symbols* symbols = nullptr;
  Function* function = nullptr;
  bool toplevel = false;  // what is set here is seen by macros and blocks
  bool soft = false;      // inside of an if: unknown filters fail only when they run
  bool in_loop = false;   // break and continue have a target

  Frame Inner(Symbols* inner_symbols) const {
    Frame inner;
    inner.symbols = inner_symbols;
    inner.function = function;
    inner.in_loop = in_loop;
    return inner;
  }
};

class Resolver {
 public:
  absl::Status Run(Body* body, Scope* scope, int* num_slots) {
    RETURN_IF_ERROR(CollectBlocks(*body));
    Function function;
    Symbols symbols(nullptr, &function);
    SymbolVisitor(&symbols).Visit(*body);
    Frame frame;
    frame.symbols = &symbols;
    frame.function = &function;
    frame.toplevel = true;
    RETURN_IF_ERROR(Visit(body, frame));
    *scope = ScopeOf(frame);
    *num_slots = static_cast<int>(function.slots.size());
    return absl::OkStatus();
  }

 private:
  // --- Helpers ---

  static VarRef Locate(const Ref& ref, const Function* from) {
    int hops = 0;
    for (; from != ref.function; from = from->parent) {
      CHECK(from != nullptr);
      ++hops;
    }
    return {hops, ref.slot};
  }

  static absl::Status Locate(const std::string& name, const Frame& frame, const Expr& at,
                             VarRef* out) {
    const Ref* ref = frame.symbols->Find(name);
    if (ref == nullptr) return SyntaxErrorAt(at.line, at.column, "cannot resolve '" + name + "'");
    *out = Locate(*ref, frame.function);
    return absl::OkStatus();
  }

  static Scope ScopeOf(const Frame& frame) {
    Scope scope;
    for (const auto& [slot, load] : frame.symbols->loads()) {
      switch (load.action) {
        case Symbols::Action::kParameter:
          break;
        case Symbols::Action::kResolve:
          scope.push_back({SlotLoad::Action::kResolve, slot, load.name, {}});
          break;
        case Symbols::Action::kAlias:
          scope.push_back({SlotLoad::Action::kAlias, slot, "", Locate(load.from, frame.function)});
          break;
        case Symbols::Action::kUndefined:
          scope.push_back({SlotLoad::Action::kUndefined, slot, "", {}});
          break;
      }
    }
    return scope;
  }

  absl::Status CollectBlocks(const Body& body) {
    for (const StmtPtr& stmt : body) {
      if (stmt->kind == StmtKind::kBlock && !blocks_.insert(stmt->name).second) {
        return SyntaxErrorAt(stmt->line, stmt->column, "block '" + stmt->name + "' defined twice");
      }
      RETURN_IF_ERROR(CollectBlocks(stmt->body));
      RETURN_IF_ERROR(CollectBlocks(stmt->branches));
      RETURN_IF_ERROR(CollectBlocks(stmt->otherwise));
    }
    return absl::OkStatus();
  }

  // --- Expressions ---

  absl::Status Visit(Expr* expr, const Frame& frame) {
    if (expr->kind == ExprKind::kName || expr->kind == ExprKind::kNamespaceRef) {
      return Locate(expr->name, frame, *expr, &expr->ref);
    }
    Frame inner = frame;
    if (expr->kind == ExprKind::kConditional) inner.soft = true;
    const bool is_filter = expr->kind == ExprKind::kFilter;
    if (is_filter && IsUnsupportedFilter(expr->name)) {
      return Unimplemented("chat template, line %d, column %d: the filter '%s' is not supported",
                           expr->line, expr->column, expr->name);
    }
    if (is_filter) expr->filter = FindFilter(expr->name);
    if (expr->kind == ExprKind::kTest) expr->test = FindTest(expr->name);
    if ((is_filter && expr->filter == nullptr) ||
        (expr->kind == ExprKind::kTest && expr->test == nullptr)) {
      if (!frame.soft) {
        return SyntaxErrorAt(
            expr->line, expr->column,
            std::string("No ") + (is_filter ? "filter" : "test") + " named '" + expr->name + "'.");
      }
    }
    absl::Status status;
    ForEachChild(*expr, [&](const Expr& child) {
      if (status.ok()) status = Visit(const_cast<Expr*>(&child), inner);  // a child of ours
    });
    return status;
  }
  absl::Status Visit(const ExprPtr& expr, const Frame& frame) {
    return expr ? Visit(expr.get(), frame) : absl::OkStatus();
  }
  absl::Status Visit(const std::vector<ExprPtr>& exprs, const Frame& frame) {
    for (const ExprPtr& expr : exprs) RETURN_IF_ERROR(Visit(expr, frame));
    return absl::OkStatus();
  }

  // --- Statements ---

  absl::Status Visit(Body* body, const Frame& frame) {
    for (const StmtPtr& stmt : *body) RETURN_IF_ERROR(Visit(stmt.get(), frame));
    return absl::OkStatus();
  }

  absl::Status Visit(Stmt* stmt, const Frame& frame) {
    switch (stmt->kind) {
      case StmtKind::kOutput:
        return Visit(stmt->nodes, frame);
      case StmtKind::kFor:
        return VisitFor(stmt, frame);
      case StmtKind::kIf:
        return VisitIf(stmt, frame);
      case StmtKind::kMacro:
        RETURN_IF_ERROR(VisitFunction(stmt, frame));
        if (frame.toplevel) stmt->exported.emplace_back(stmt->name, VarRef());
        stmt->ref = Locate(*frame.symbols->Find(stmt->name), frame.function);
        return absl::OkStatus();
      case StmtKind::kCallBlock:
        RETURN_IF_ERROR(VisitFunction(stmt, frame));
        return Visit(stmt->expr, frame);
      case StmtKind::kFilterBlock:
      case StmtKind::kSetBlock:
      case StmtKind::kWith:
      case StmtKind::kScope:
        return VisitScoped(stmt, frame);
      case StmtKind::kSet:
        RETURN_IF_ERROR(Visit(stmt->expr, frame));
        return VisitTarget(stmt, frame);
      case StmtKind::kBlock:
        return VisitBlock(stmt);
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        if (frame.in_loop) return absl::OkStatus();
        return SyntaxErrorAt(
            stmt->line, stmt->column,
            stmt->kind == StmtKind::kBreak ? "'break' outside loop" : "'continue' not in loop");
    }
    return absl::OkStatus();
  }

  absl::Status VisitIf(Stmt* stmt, const Frame& frame) {
    Frame soft = frame;
    soft.soft = true;
    RETURN_IF_ERROR(Visit(stmt->expr, soft));
    RETURN_IF_ERROR(Visit(&stmt->body, soft));
    for (const StmtPtr& branch : stmt->branches) {
      RETURN_IF_ERROR(Visit(branch->expr, soft));
      RETURN_IF_ERROR(Visit(&branch->body, soft));
    }
    return Visit(&stmt->otherwise, soft);
  }

  // The target of set, and which names and namespaces it touches.
  absl::Status VisitTarget(Stmt* stmt, const Frame& frame) {
    RETURN_IF_ERROR(Visit(stmt->target, frame));
    CollectTarget(*stmt->target, frame, stmt);
    return absl::OkStatus();
  }

  static void CollectTarget(const Expr& target, const Frame& frame, Stmt* stmt) {
    if (target.kind == ExprKind::kNamespaceRef) {
      stmt->namespaces.push_back(target.ref);
    } else if (target.kind == ExprKind::kName) {
      if (frame.toplevel) stmt->exported.emplace_back(target.name, target.ref);
    }
    for (const ExprPtr& item : target.items) CollectTarget(*item, frame, stmt);
  }

  absl::Status VisitScoped(Stmt* stmt, const Frame& frame) {
    Symbols symbols(frame.symbols, frame.function);
    SymbolVisitor visitor(&symbols);
    if (stmt->kind == StmtKind::kWith) visitor.Visit(stmt->parameters);
    visitor.Visit(stmt->body);
    if (stmt->kind != StmtKind::kWith) visitor.Visit(stmt->expr);  // a filter's arguments
    const Frame inner = frame.Inner(&symbols);
    RETURN_IF_ERROR(Visit(stmt->nodes, frame));
    RETURN_IF_ERROR(Visit(stmt->parameters, inner));
    RETURN_IF_ERROR(Visit(&stmt->body, inner));
    RETURN_IF_ERROR(Visit(stmt->expr, inner));
    stmt->scope = ScopeOf(inner);
    if (stmt->kind == StmtKind::kSetBlock) return VisitTarget(stmt, frame);
    return absl::OkStatus();
  }

  absl::Status VisitFor(Stmt* stmt, const Frame& frame) {
    if (const Expr* bad = FindLoopTarget(*stmt)) {
      return SyntaxErrorAt(bad->line, bad->column,
                           "Can't assign to special loop variable in for-loop target");
    }
    RETURN_IF_ERROR(Visit(stmt->expr, frame));
    if (stmt->test) RETURN_IF_ERROR(VisitLoopFilter(stmt, frame));

    Function own;
    own.parent = frame.function;
    Function* function = stmt->recursive ? &own : frame.function;
    Symbols symbols(frame.symbols, function);
    const bool uses_loop = stmt->recursive || !UndeclaredScan({"loop"}).Run(stmt->body).empty();
    Ref loop;
    if (uses_loop) loop = symbols.AddParameter("loop");
    SymbolVisitor visitor(&symbols);
    visitor.Visit(*stmt->target, true);
    visitor.Visit(stmt->body);
    Frame body_frame = frame.Inner(&symbols);
    body_frame.function = function;
    body_frame.in_loop = true;
    if (uses_loop) stmt->loop_ref = Locate(loop, function);
    RETURN_IF_ERROR(Visit(stmt->target, body_frame));
    RETURN_IF_ERROR(Visit(&stmt->body, body_frame));
    stmt->scope = ScopeOf(body_frame);

    Symbols else_symbols(frame.symbols, function);
    SymbolVisitor(&else_symbols).Visit(stmt->otherwise);
    Frame else_frame = frame.Inner(&else_symbols);
    else_frame.function = function;
    if (stmt->recursive) else_frame.in_loop = false;
    RETURN_IF_ERROR(Visit(&stmt->otherwise, else_frame));
    stmt->else_scope = ScopeOf(else_frame);
    stmt->num_slots = static_cast<int>(own.slots.size());
    return absl::OkStatus();
  }

  // `for x in y if test`: the test runs in a function of its own, where only the target is set.
  absl::Status VisitLoopFilter(Stmt* stmt, const Frame& frame) {
    Function function;
    function.parent = frame.function;
    Symbols symbols(frame.symbols, &function);
    SymbolVisitor visitor(&symbols);
    visitor.Visit(*stmt->target, true);
    visitor.Visit(stmt->test);
    Frame inner = frame.Inner(&symbols);
    inner.function = &function;
    stmt->test_target = CloneTarget(*stmt->target);
    RETURN_IF_ERROR(Visit(stmt->test_target, inner));
    RETURN_IF_ERROR(Visit(stmt->test, inner));
    stmt->test_scope = ScopeOf(inner);
    stmt->test_slots = static_cast<int>(function.slots.size());
    return absl::OkStatus();
  }

  // A macro, or the body of a call block.
  absl::Status VisitFunction(Stmt* stmt, const Frame& frame) {
    Function function;
    function.parent = frame.function;
    Symbols symbols(frame.symbols, &function);
    const auto analyze = [&] {
      SymbolVisitor visitor(&symbols);
      visitor.Visit(stmt->parameters);
      visitor.Visit(stmt->defaults);
      visitor.Visit(stmt->body);
    };
    analyze();
    RETURN_IF_ERROR(DeclareSpecial(stmt, &symbols));
    analyze();
    for (const ExprPtr& parameter : stmt->parameters) {
      stmt->parameter_slots.push_back(symbols.Find(parameter->name)->slot);
    }
    Frame inner = frame.Inner(&symbols);
    inner.function = &function;
    inner.in_loop = false;
    RETURN_IF_ERROR(Visit(stmt->defaults, inner));
    RETURN_IF_ERROR(Visit(&stmt->body, inner));
    stmt->scope = ScopeOf(inner);
    stmt->num_slots = static_cast<int>(function.slots.size());
    return absl::OkStatus();
  }

  static absl::Status DeclareSpecial(Stmt* stmt, Symbols* symbols) {
    const auto used = UndeclaredScan({"caller", "kwargs", "varargs"}).Run(stmt->body);
    const auto parameter = [&](std::string_view name) {
      for (size_t i = 0; i < stmt->parameters.size(); ++i) {
        if (stmt->parameters[i]->name == name) return static_cast<int>(i);
      }
      return -1;
    };
    const int caller = parameter("caller");
    stmt->has_caller_parameter = caller >= 0;
    if (used.count("caller") > 0) {
      const size_t without_default = stmt->parameters.size() - stmt->defaults.size();
      if (caller >= 0 && static_cast<size_t>(caller) < without_default) {
        return SyntaxErrorAt(stmt->line, stmt->column,
                             "When defining macros or call blocks the special \"caller\" argument "
                             "must be omitted or be given a default.");
      }
      if (caller < 0) stmt->caller_slot = symbols->AddParameter("caller").slot;
    }
    if (used.count("kwargs") > 0 && parameter("kwargs") < 0) {
      stmt->kwargs_slot = symbols->AddParameter("kwargs").slot;
    }
    if (used.count("varargs") > 0 && parameter("varargs") < 0) {
      stmt->varargs_slot = symbols->AddParameter("varargs").slot;
    }
    return absl::OkStatus();
  }

  absl::Status VisitBlock(Stmt* stmt) {
    const auto used = UndeclaredScan({"self", "super"}).Run(stmt->body);
    if (!used.empty()) {
      return Unimplemented("chat template, line %d, column %d: '%s' in a block is not supported",
                           stmt->line, stmt->column, *used.begin());
    }
    Function function;
    Symbols symbols(nullptr, &function);
    SymbolVisitor(&symbols).Visit(stmt->body);
    Frame frame;
    frame.symbols = &symbols;
    frame.function = &function;
    RETURN_IF_ERROR(Visit(&stmt->body, frame));
    stmt->scope = ScopeOf(frame);
    stmt->num_slots = static_cast<int>(function.slots.size());
    return absl::OkStatus();
  }

  std::set<std::string> blocks_;
};

}  // namespace

absl::Status Resolve(Body* body, Scope* root_scope, int* num_slots) {
  return Resolver().Run(body, root_scope, num_slots);
}

}  // namespace penstock::jinja
