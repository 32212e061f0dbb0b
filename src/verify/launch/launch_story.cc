#include "verify/launch/launch_story.h"

#include <fmt/format.h>

namespace megartp::launch {
namespace {

// Emits the steps that must precede a step of a node, each once, in an order in which they can happen.
class Story {
 public:
  Story(const Graph& graph, const Conflict& conflict)
      : graph_(graph), conflict_(conflict), in_(graph.nodes.size()), done_(graph.nodes.size(), 0) {
    for (const Edge& e : graph.edges) in_[e.to].push_back(&e);
  }

  std::vector<Step> tell() {
    const uint32_t k = conflict_.second;
    const Node& node = graph_.nodes[k];
    const Access& b = node.accesses[conflict_.second_access];
    start(k);
    if (!is_early(node, b)) wait(k);
    add(k,
        is_early(node, b) ? (b.before_trigger ? StepKind::kEarlyFenced : StepKind::kEarly)
                          : (b.before_trigger ? StepKind::kPostFenced : StepKind::kPost),
        last_words(b));
    return std::move(steps_);
  }

 private:
  static uint32_t bit(StepKind kind) { return 1U << static_cast<uint32_t>(kind); }

  bool add(uint32_t n, StepKind kind, std::string text = {}) {
    if ((done_[n] & bit(kind)) != 0) return false;
    done_[n] |= bit(kind);
    steps_.push_back({n, kind, std::move(text)});
    return true;
  }
  bool is_done(uint32_t n, StepKind kind) const { return (done_[n] & bit(kind)) != 0; }
  const std::string& name(uint32_t n) const { return graph_.nodes[n].name; }

  void start(uint32_t n) {
    if (is_done(n, StepKind::kStart)) return;
    for (const Edge* e : in_[n]) switch (e->kind) {
        case EdgeKind::kFull: complete(e->from); break;
        case EdgeKind::kProgrammatic: fire(e->from); break;
        case EdgeKind::kBlockStart:
        case EdgeKind::kLaunchCompletion: start(e->from); break;
      }
    add(n, StepKind::kStart, fmt::format("{} starts", name(n)));
  }

  // A kernel that waits on some paths only does not wait, unless the story is about what follows its wait.
  bool skips(uint32_t n) const {
    if (graph_.nodes[n].waits != Waits::kSome) return false;
    const auto is_about = [&](uint32_t node, uint32_t access) {
      return node == n && !is_early(graph_.nodes[n], graph_.nodes[n].accesses[access]);
    };
    return !is_about(conflict_.first, conflict_.first_access) && !is_about(conflict_.second, conflict_.second_access);
  }

  void wait(uint32_t n) {
    if (graph_.nodes[n].waits == Waits::kNone || is_done(n, StepKind::kWait) || is_done(n, StepKind::kSkipWait)) return;
    start(n);
    if (skips(n)) {
      add(n, StepKind::kSkipWait, fmt::format("{} takes a path without a wait", name(n)));
      return;
    }
    bool waited = false;
    for (const Edge* e : in_[n])
      if (is_waited_for(e->kind)) {
        complete(e->from);
        waited = true;
      }
    add(n, StepKind::kWait, waited ? fmt::format("the wait of {} returns", name(n)) : "");
  }

  // Accesses of one kind, named when they are the first of the conflict.
  void touch(uint32_t n, StepKind kind, bool early, bool fenced) {
    const Node& node = graph_.nodes[n];
    bool any = false;
    std::string text;
    for (uint32_t i = 0; i < node.accesses.size(); ++i) {
      const Access& a = node.accesses[i];
      if (is_early(node, a) != early || a.before_trigger != fenced) continue;
      any = true;
      if (n == conflict_.first && i == conflict_.first_access)
        text = fmt::format("{} {}{}", node.name, access_text(graph_, a, conflict_.begin, conflict_.end),
                           a.is_write ? ", which others cannot see yet" : "");
    }
    if (!any) return;
    if (!early) wait(n);
    if (!early && is_done(n, StepKind::kSkipWait)) return;
    add(n, kind, std::move(text));
  }

  std::string trigger_text(uint32_t n, bool before_wait) const {
    const Node& node = graph_.nodes[n];
    if (node.grid == 1)
      return fmt::format("{}.cta0 triggers{}", node.name, before_wait ? " before its wait returns" : "");
    return fmt::format("all {} CTAs of {} trigger{}", node.grid, node.name,
                       before_wait ? " before their waits return" : "");
  }

  void fire(uint32_t n) {
    const Node& node = graph_.nodes[n];
    if (node.trigger == Trigger::kNone) {
      leave(n);
      return;
    }
    if (is_done(n, StepKind::kTrigger)) return;
    start(n);
    if (node.trigger == Trigger::kAfterWait) wait(n);
    touch(n, StepKind::kEarlyFenced, true, true);
    touch(n, StepKind::kPostFenced, false, true);
    const bool before = node.trigger == Trigger::kBeforeWait && node.waits != Waits::kNone && !in_[n].empty();
    add(n, StepKind::kTrigger, trigger_text(n, before && !is_done(n, StepKind::kWait)));
  }

  void leave(uint32_t n) {
    if (is_done(n, StepKind::kExit)) return;
    start(n);
    wait(n);
    touch(n, StepKind::kEarlyFenced, true, true);
    touch(n, StepKind::kPostFenced, false, true);
    if (graph_.nodes[n].trigger != Trigger::kNone) fire(n);
    touch(n, StepKind::kEarly, true, false);
    touch(n, StepKind::kPost, false, false);
    const bool counts = graph_.nodes[n].trigger == Trigger::kNone && graph_.nodes[n].kind == NodeKind::kKernel;
    add(n, StepKind::kExit, counts ? fmt::format("{} exits, which counts as its trigger", name(n)) : "");
  }

  void complete(uint32_t n) {
    if (is_done(n, StepKind::kComplete)) return;
    leave(n);
    add(n, StepKind::kComplete, fmt::format("{} is complete", name(n)));
  }

  std::string last_words(const Access& b) const {
    const Node& x = graph_.nodes[conflict_.first];
    const Access& a = x.accesses[conflict_.first_access];
    const std::string range = range_text(graph_, a.buffer, conflict_.begin, conflict_.end);
    const std::string act = fmt::format("{} {} {}", name(conflict_.second), b.is_write ? "writes" : "reads", range);
    if (!a.is_write) return fmt::format("{} before {} has read it", act, x.name);
    if (is_done(conflict_.first, StepKind::kComplete))
      return fmt::format("{} while nothing has made what {} wrote visible to it", act, x.name);
    const StepKind group = is_early(x, a) ? (a.before_trigger ? StepKind::kEarlyFenced : StepKind::kEarly)
                                          : (a.before_trigger ? StepKind::kPostFenced : StepKind::kPost);
    if (is_done(conflict_.first, group))
      return fmt::format("{} while what {} wrote is not visible: {} is not complete", act, x.name, x.name);
    return fmt::format("{} before {} writes it", act, x.name);
  }

  const Graph& graph_;
  const Conflict& conflict_;
  std::vector<std::vector<const Edge*>> in_;
  std::vector<uint32_t> done_;
  std::vector<Step> steps_;
};

}  // namespace

std::vector<Step> tell_story(const Graph& graph, const Conflict& conflict) { return Story(graph, conflict).tell(); }

std::string access_text(const Graph& graph, const Access& access, uint64_t begin, uint64_t end) {
  return fmt::format("{} {}", access.is_write ? "writes" : "reads", range_text(graph, access.buffer, begin, end));
}

std::string_view hazard_name(const Access& first, const Access& second) {
  if (!first.is_write) return "WAR";
  return second.is_write ? "WAW" : "RAW";
}

}  // namespace megartp::launch
