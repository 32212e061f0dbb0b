#include <bit>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <nlohmann/json.hpp>

#include "graph/op_schema.h"
#include "graph/test_graphs.h"
#include "megartp/op_graph.h"

namespace megartp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string error_of(const std::string& text) {
  const Result<OpGraph> graph = graph_from_json(text);
  if (graph) return "no error";
  const std::string message = graph.error().to_string();
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_EQ(graph.error().code, ErrorCode::kParse) << message;
  return message;
}

void expect_round_trip(const OpGraph& graph) {
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  const std::string text = to_json(graph);
  const Result<OpGraph> again = graph_from_json(text);
  ASSERT_TRUE(again) << again.error().to_string() << "\n" << text;
  EXPECT_EQ(*again, graph) << text;
  EXPECT_EQ(to_json(*again), text);
}

constexpr const char* kSmall = R"json({
  "megartp_graph": 1,
  "name": "small",
  "tensors": [
    {"name":"x","dtype":"BF16","shape":["M",8],"storage":"runtime_arg"},
    {"name":"w","dtype":"F32","shape":[3],"storage":"weight"},
    {"name":"first.out","dtype":"BF16","shape":["M",8],"storage":"activation"},
    {"name":"cache","dtype":"U8","shape":["PAGES",64,"round_up(KV, 256)"],"storage":"state"},
    {"name":"sum","dtype":"BF16","shape":["M",8],"storage":"output"}
  ],
  "ops": [
    {"name":"first","kind":"add","inputs":["x","x"],"outputs":["first.out"],"updates":[],"attrs":{}},
    {"name":"second","kind":"add","inputs":["first.out","x"],"outputs":["sum"],"updates":[],"attrs":{}}
  ],
  "outputs": ["sum"]
}
)json";

OpGraph small_graph() {
  OpGraph g("small");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", 8});
  g.bound_weight("w", DType::kF32, {3});
  const Tensor y = g.add(x, x, "first");
  g.state("cache", DType::kU8, {"PAGES", 64, Dim::sym("KV", 256)});
  const Tensor in[] = {y, x};
  const std::string_view names[] = {"sum"};
  const auto z = g.op("add", "second", in, {}, names);
  g.set_outputs({z[0]});
  return g;
}

TEST(GraphJson, HasOneTextForEachGraph) {
  EXPECT_EQ(to_json(small_graph()), kSmall);
  expect_round_trip(small_graph());
  const Result<OpGraph> read = graph_from_json(kSmall);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, small_graph());
}

TEST(GraphJson, EmptyGraph) {
  const OpGraph g("empty");
  EXPECT_EQ(
      to_json(g),
      "{\n  \"megartp_graph\": 1,\n  \"name\": \"empty\",\n  \"tensors\": [],\n  \"ops\": [],\n  \"outputs\": []\n}\n");
  expect_round_trip(g);
}

TEST(GraphJson, LayoutAndKeyOrderOfInputDoNotMatter) {
  const Json root = Json::parse(kSmall);
  const Result<OpGraph> compact = graph_from_json(root.dump());
  ASSERT_TRUE(compact) << compact.error().to_string();
  EXPECT_EQ(*compact, small_graph());
  const Result<OpGraph> sorted = graph_from_json(nlohmann::json::parse(kSmall).dump(4));
  ASSERT_TRUE(sorted) << sorted.error().to_string();
  EXPECT_EQ(*sorted, small_graph());
}

TEST(GraphJson, EveryDtypeStorageAndHostileName) {
  OpGraph g(
      "gr\xc3\xb6\xc3\x9f"
      "e \"quoted\" \\ \n <b>&amp;</b> \xf0\x9f\x90\x8c");
  for (const DType d : {DType::kF64, DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kI64, DType::kI32, DType::kU8})
    g.bound_weight(to_string(d), d, {1, "M", Dim::sym("KV", 2), 2147483647});
  const Tensor x = g.runtime_arg("x\ty", DType::kBF16, {"M", 8});
  const Tensor s = g.state("\x01", DType::kU8, {"P"});
  g.set_outputs({g.add(x, x, "{\"name\":1}"), s});
  expect_round_trip(g);
}

// In-place updates, from an activation that is updated to a state that two ops update and a third one reads.
TEST(GraphJson, InPlaceUpdates) {
  const OpGraph g = test::absorb_chain();
  expect_round_trip(g);
  EXPECT_THAT(to_json(g), HasSubstr(R"("updates":["q_out"])"));
}

// Every family's own example of attributes: the declared defaults, all of them written out.
TEST(GraphJson, AttributeTypesAndBitsSurvive) {
  OpGraph g("norms");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", 128});
  const Tensor w = g.bound_weight("w", DType::kBF16, {128});
  if (find_op_schema("rmsnorm") == nullptr) GTEST_SKIP() << "needs rmsnorm";
  const std::vector<double> values{1e-5, 1e-6, 1.0, 0.1, 1.0 / 3.0, 1.0000000000000002, 2.0e15};
  for (const double eps : values) g.rmsnorm(x, w, eps);
  ASSERT_TRUE(g.status()) << g.status().error().to_string();
  const Result<OpGraph> again = graph_from_json(to_json(g));
  ASSERT_TRUE(again) << again.error().to_string();
  ASSERT_EQ(*again, g);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint64_t>(again->ops()[i].attrs.get_double("eps", 0)), std::bit_cast<uint64_t>(values[i]));
  EXPECT_THAT(to_json(g), AllOf(HasSubstr(R"("attrs":{"eps":1e-05})"), HasSubstr(R"("attrs":{"eps":1.0})")));
}

TEST(GraphJson, IntegerForADoubleAttributeIsAnError) {
  if (find_op_schema("rmsnorm") == nullptr) GTEST_SKIP() << "needs rmsnorm";
  OpGraph g("g");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", 128});
  g.rmsnorm(x, g.bound_weight("w", DType::kBF16, {128}), 1.0, "n");
  std::string text = to_json(g);
  const size_t pos = text.find("\"eps\":1.0");
  ASSERT_NE(pos, std::string::npos) << text;
  text.replace(pos, 9, "\"eps\":1");
  EXPECT_THAT(error_of(text),
              AllOf(HasSubstr("op 'n' (rmsnorm): wrong type of attribute 'eps'"), HasSubstr("at=ops[0]")));
}

// --- errors
// ------------------------------------------------------------------------------------------------------------

// The small graph after one edit of its JSON.
std::string edited(const std::function<void(Json&)>& edit) {
  Json root = Json::parse(kSmall);
  edit(root);
  return error_of(root.dump());
}

TEST(GraphJson, NotJson) {
  EXPECT_THAT(error_of(""), AllOf(HasSubstr("not JSON"), HasSubstr("line 1")));
  EXPECT_THAT(error_of("{\"megartp_graph\": 1,\n ]"), AllOf(HasSubstr("not JSON"), HasSubstr("line 2")));
  EXPECT_THAT(error_of(std::string("\0", 1)), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("\"\xff\""), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("{\"a\": 1e999}"), HasSubstr("not JSON"));
  EXPECT_THAT(error_of(std::string(kSmall) + "{}"), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of("null"), HasSubstr("expected an object"));
}

TEST(GraphJson, LimitsOfDepthKeysAndSize) {
  EXPECT_THAT(error_of(std::string(100000, '[')), HasSubstr("not JSON"));
  EXPECT_THAT(error_of(std::string(100000, '[') + std::string(100000, ']')), HasSubstr("nested deeper than 8 levels"));
  std::string objects = "1";
  for (int i = 0; i < 12; ++i) objects = "{\"a\":" + objects + "}";
  EXPECT_THAT(error_of(objects), HasSubstr("nested deeper than 8 levels"));
  std::string wide = "{";
  for (int i = 0; i < 100; ++i) wide += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_THAT(error_of(wide + "\"end\":0}"), HasSubstr("more than 64 keys"));
  EXPECT_THAT(error_of(std::string((size_t{64} << 20) + 1, ' ')), HasSubstr("more than the limit"));
}

TEST(GraphJson, KeysMustBeKnownPresentAndUnique) {
  EXPECT_THAT(edited([](Json& j) { j["extra"] = 1; }), HasSubstr("unknown key 'extra'"));
  EXPECT_THAT(edited([](Json& j) { j.erase("ops"); }), HasSubstr("key 'ops' is missing"));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][1]["rank"] = 1; }),
              AllOf(HasSubstr("unknown key 'rank'"), HasSubstr("at=tensors[1]")));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][1].erase("dtype"); }),
              AllOf(HasSubstr("key 'dtype' is missing"), HasSubstr("at=tensors[1]")));
  EXPECT_THAT(edited([](Json& j) { j["ops"][1].erase("kind"); }),
              AllOf(HasSubstr("key 'kind' is missing"), HasSubstr("at=ops[1]")));
  EXPECT_THAT(error_of(R"({"megartp_graph": 1, "name": "a", "name": "b", "tensors": [], "ops": [], "outputs": []})"),
              HasSubstr("repeated key 'name'"));
  EXPECT_THAT(edited([](Json& j) { j["megartp_graph"] = 2; }), HasSubstr("unknown version of the graph format"));
  EXPECT_THAT(edited([](Json& j) { j["megartp_graph"] = "1"; }), HasSubstr("unknown version of the graph format"));
}

TEST(GraphJson, WrongTypes) {
  EXPECT_THAT(edited([](Json& j) { j["name"] = 1; }), AllOf(HasSubstr("expected a string"), HasSubstr("at=name")));
  EXPECT_THAT(edited([](Json& j) { j["name"] = ""; }), HasSubstr("the graph name '' is empty"));
  EXPECT_THAT(edited([](Json& j) { j["tensors"] = 1; }),
              AllOf(HasSubstr("expected an array"), HasSubstr("at=tensors")));
  EXPECT_THAT(edited([](Json& j) { j["ops"] = Json::object(); }),
              AllOf(HasSubstr("expected an array"), HasSubstr("at=ops")));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][0] = 1; }),
              AllOf(HasSubstr("expected an object"), HasSubstr("at=tensors[0]")));
  EXPECT_THAT(edited([](Json& j) { j["ops"][0] = "add"; }),
              AllOf(HasSubstr("expected an object"), HasSubstr("at=ops[0]")));
  EXPECT_THAT(edited([](Json& j) { j["ops"][0]["inputs"][1] = 3; }),
              AllOf(HasSubstr("expected an array of names"), HasSubstr("at=ops[0].inputs")));
  EXPECT_THAT(edited([](Json& j) { j["ops"][0]["attrs"] = 3; }), HasSubstr("at=ops[0].attrs"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][0]["attrs"]["eps"] = nullptr; }), HasSubstr("at=ops[0].attrs.eps"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][0]["attrs"]["n"] = ~uint64_t{0}; }), HasSubstr("at=ops[0].attrs.n"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][0]["attrs"]["n"] = 1; }),
              HasSubstr("op 'first' (add): unknown attribute 'n'"));
  EXPECT_THAT(edited([](Json& j) { j["outputs"] = "sum"; }), HasSubstr("at=outputs"));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][0]["dtype"] = "F16"; }),
              AllOf(HasSubstr("unknown dtype 'F16'"), HasSubstr("at=tensors[0].dtype")));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][0]["storage"] = "stack"; }),
              HasSubstr("unknown storage class 'stack'"));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][0]["partial"] = 1; }), HasSubstr("at=tensors[0].partial"));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][0]["partial"] = true; }),
              HasSubstr("only a tensor that an op defines can be partial"));
}

TEST(GraphJson, Shapes) {
  const auto with = [](Json dim) { return edited([&](Json& j) { j["tensors"][1]["shape"][0] = std::move(dim); }); };
  for (const Json& bad : {Json("3"), Json("two words"), Json("round_up(KV,256)"), Json("round_up(KV, 1)"), Json(""),
                          Json(1.5), Json(true), Json(nullptr), Json(~uint64_t{0}), Json::array()})
    EXPECT_THAT(with(bad), HasSubstr("at=tensors[1].shape")) << bad;
  EXPECT_THAT(with(0), AllOf(HasSubstr("tensor 'w' has shape [0]"), HasSubstr("at=tensors[1]")));
  EXPECT_THAT(with("*"), HasSubstr("tensor 'w' has shape [*]"));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][1]["shape"] = Json::array(); }), HasSubstr("0 dimensions"));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][1]["shape"] = {1, 2, 3, 4, 5}; }), HasSubstr("5 dimensions"));
}

TEST(GraphJson, InferredOutputsMustMatchTheFile) {
  EXPECT_THAT(edited([](Json& j) { j["tensors"][4]["shape"][1] = 9; }),
              AllOf(HasSubstr("op 'second' (add): tensor 'sum' has shape [M, 8] by inference, the file says [M, 9]"),
                    HasSubstr("at=tensors[4].shape")));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][4]["dtype"] = "F32"; }),
              HasSubstr("op 'second' (add): tensor 'sum' has dtype BF16 by inference, the file says F32"));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][4]["partial"] = true; }),
              HasSubstr("has partial false by inference, the file says true"));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][0]["shape"][1] = 9; }),
              AllOf(HasSubstr("op 'first' (add): tensor 'first.out' has shape [M, 9] by inference"),
                    HasSubstr("at=tensors[2].shape")));
  EXPECT_THAT(edited([](Json& j) { j["ops"][0]["inputs"][1] = "w"; }),
              AllOf(HasSubstr("op 'first' (add): tensor 'w' has dtype F32, expected BF16"), HasSubstr("at=ops[0]")));
}

TEST(GraphJson, NamesAndOrder) {
  EXPECT_THAT(edited([](Json& j) { j["tensors"][1]["name"] = "x"; }),
              AllOf(HasSubstr("tensor 'x' is listed twice"), HasSubstr("at=tensors[1].name")));
  EXPECT_THAT(edited([](Json& j) { j["tensors"][1]["name"] = ""; }), HasSubstr("the tensor name '' is empty"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][1]["name"] = "first"; }),
              HasSubstr("op 'first' (add): an op of this name exists already"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][1]["name"] = ""; }), HasSubstr("the op name is empty"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][1]["kind"] = "warp"; }),
              AllOf(HasSubstr("op 'second': unknown op kind 'warp'"), HasSubstr("at=ops[1]")));
  EXPECT_THAT(edited([](Json& j) { j["ops"][1]["inputs"][0] = "nobody"; }),
              AllOf(HasSubstr("op 'second': unknown tensor 'nobody'"), HasSubstr("at=ops[1].inputs")));
  EXPECT_THAT(edited([](Json& j) { j["ops"][0]["inputs"][0] = "sum"; }),
              HasSubstr("op 'first': tensor 'sum' is used before it is defined"));
  EXPECT_THAT(edited([](Json& j) { std::swap(j["ops"][0], j["ops"][1]); }), HasSubstr("is used before it is defined"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][1]["inputs"].push_back("x"); }), HasSubstr("takes 2 inputs, got 3"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][1]["outputs"].push_back("x2"); }),
              HasSubstr("defines 1 outputs, got 2 names"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][1]["outputs"] = Json::array(); }),
              HasSubstr("defines 1 outputs, the file lists none"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][1]["outputs"][0] = "x"; }), HasSubstr("tensor 'x' exists already"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][1]["outputs"][0] = "other"; }),
              HasSubstr("its output 'other' is not listed"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][0]["outputs"][0] = "sum"; }),
              HasSubstr("is not listed where the op defines it"));
  EXPECT_THAT(edited([](Json& j) {
                j["ops"].erase(1);
                j["outputs"] = Json::array();
              }),
              HasSubstr("no op defines the output tensor 'sum'"));
  EXPECT_THAT(edited([](Json& j) { j["tensors"].erase(4); }), HasSubstr("its output 'sum' is not listed"));
  EXPECT_THAT(edited([](Json& j) { j["ops"][0]["updates"] = {"x"}; }),
              AllOf(HasSubstr("op 'first' (add) updates [], the file says ['x']"), HasSubstr("at=ops[0].updates")));
}

TEST(GraphJson, Outputs) {
  EXPECT_THAT(edited([](Json& j) { j["outputs"] = {"nobody"}; }), HasSubstr("unknown tensor 'nobody'"));
  EXPECT_THAT(edited([](Json& j) { j["outputs"] = {"sum", "sum"}; }), HasSubstr("tensor 'sum' is listed twice"));
  EXPECT_THAT(edited([](Json& j) { j["outputs"] = {"x"}; }), HasSubstr("tensor 'x' is a read-only runtime_arg"));
  EXPECT_THAT(edited([](Json& j) { j["outputs"] = Json::array(); }),
              HasSubstr("tensor 'sum' is listed as output, but the list of outputs makes it activation"));
  EXPECT_THAT(edited([](Json& j) { j["outputs"] = {"sum", "first.out"}; }),
              HasSubstr("tensor 'first.out' is listed as activation, but the list of outputs makes it output"));
}

// --- properties
// --------------------------------------------------------------------------------------------------------

TEST(GraphJsonProperty, RandomGraphsRoundTrip) {
  EXPECT_TRUE(rc::check("to_json then graph_from_json is the identity", [] {
    const OpGraph g = test::random_graph(*rc::gen::container<std::vector<uint32_t>>(rc::gen::arbitrary<uint32_t>()));
    RC_ASSERT(g.status().has_value());
    const std::string text = to_json(g);
    const Result<OpGraph> again = graph_from_json(text);
    RC_ASSERT(again.has_value());
    RC_ASSERT(*again == g);
    RC_ASSERT(to_json(*again) == text);
  }));
}

// One byte of a valid file replaced, removed or inserted: an error, or a graph that round-trips.
TEST(GraphJsonProperty, DamagedFilesAreReadOrRefused) {
  const std::string text = to_json(test::absorb_chain());
  EXPECT_TRUE(rc::check("no exception, no crash", [&] {
    std::string damaged = text;
    const size_t pos = *rc::gen::inRange<size_t>(0, text.size());
    const char byte = *rc::gen::arbitrary<char>();
    switch (*rc::gen::inRange(0, 3)) {
      case 0: damaged[pos] = byte; break;
      case 1: damaged.erase(pos, 1); break;
      default: damaged.insert(damaged.begin() + static_cast<std::ptrdiff_t>(pos), byte);
    }
    const Result<OpGraph> graph = graph_from_json(damaged);
    if (!graph) {
      RC_ASSERT(graph.error().code == ErrorCode::kParse);
      return;
    }
    const Result<OpGraph> again = graph_from_json(to_json(*graph));
    RC_ASSERT(again.has_value());
    RC_ASSERT(*again == *graph);
  }));
}

}  // namespace
}  // namespace megartp
