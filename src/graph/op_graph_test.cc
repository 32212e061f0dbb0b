#include "megartp/op_graph.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/op_schema.h"
#include "graph/test_graphs.h"
#include "graph/text.h"

namespace megartp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string error_of(const OpGraph& graph) {
  return graph.status() ? std::string("no error") : graph.status().error().to_string();
}

TEST(OpGraph, RecordsOpsAndTensorsInProgramOrder) {
  OpGraph g("g");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", 8});
  const Tensor r = g.runtime_arg("residual", DType::kBF16, {"M", 8});
  const Tensor y = g.add(x, r);
  const Tensor z = g.add(y, x, "second");
  g.set_outputs({z});
  ASSERT_TRUE(g.status()) << error_of(g);
  ASSERT_EQ(g.ops().size(), 2U);
  EXPECT_EQ(g.ops()[0].name, "add_0");
  EXPECT_EQ(g.ops()[0].kind, "add");
  EXPECT_THAT(g.ops()[0].inputs, ElementsAre(x.id, r.id));
  EXPECT_THAT(g.ops()[0].outputs, ElementsAre(y.id));
  EXPECT_EQ(g.tensor(y.id).name, "add_0.out");
  EXPECT_EQ(g.tensor(y.id).producer, 0U);
  EXPECT_EQ(g.tensor(y.id).storage, Storage::kActivation);
  EXPECT_EQ(g.tensor(z.id).name, "second.out");
  EXPECT_EQ(g.tensor(z.id).storage, Storage::kOutput);
  EXPECT_EQ(g.tensor(z.id).shape, (Shape{"M", 8}));
  EXPECT_EQ(g.tensor(x.id).producer, kInvalidId);
  EXPECT_THAT(g.outputs(), ElementsAre(z.id));
  EXPECT_EQ(g.find_tensor("second.out").id, z.id);
  EXPECT_FALSE(g.find_tensor("nothing").valid());
}

TEST(OpGraph, AutomaticOpNamesAvoidTakenOnes) {
  OpGraph g("g");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {4, 8});
  g.add(x, x, "add_1");
  g.add(x, x);
  ASSERT_TRUE(g.status()) << error_of(g);
  EXPECT_EQ(g.ops()[1].name, "add_2");
}

TEST(OpGraph, OutputNamesReplaceTheDefaults) {
  OpGraph g("g");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {4, 8});
  const Tensor in[] = {x, x};
  const std::string_view names[] = {"sum"};
  const auto out = g.op("add", "a", in, {}, names);
  ASSERT_TRUE(g.status()) << error_of(g);
  EXPECT_EQ(g.tensor(out[0].id).name, "sum");
}

TEST(OpGraph, ShapeErrorNamesOpTensorExpectedAndActualShape) {
  OpGraph g("g");
  const Tensor a = g.runtime_arg("left", DType::kBF16, {"M", 8});
  const Tensor b = g.runtime_arg("right", DType::kBF16, {"M", 9});
  EXPECT_FALSE(g.add(a, b, "sum").valid());
  ASSERT_FALSE(g.status());
  EXPECT_EQ(g.status().error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of(g), "op 'sum' (add): tensor 'right' has shape [M, 9], expected [M, 8] (graph='g')");
}

TEST(OpGraph, DtypeErrorNamesOpTensorExpectedAndActualDtype) {
  OpGraph g("g");
  const Tensor a = g.runtime_arg("left", DType::kF32, {"M", 8});
  g.add(a, a, "sum");
  EXPECT_EQ(error_of(g), "op 'sum' (add): tensor 'left' has dtype F32, expected BF16 (graph='g')");
}

TEST(OpGraph, ErrorsAreStickyAndLaterCallsRecordNothing) {
  OpGraph g("g");
  const Tensor a = g.runtime_arg("a", DType::kBF16, {"M", 8});
  const Tensor sum = g.add(a, a, "fine");
  g.runtime_arg("a", DType::kBF16, {"M", 8});
  const std::string first = error_of(g);
  EXPECT_THAT(first, HasSubstr("tensor 'a' exists already"));
  const OpGraph before = g;
  EXPECT_FALSE(g.runtime_arg("b", DType::kBF16, {0}).valid());
  EXPECT_FALSE(g.bound_weight("c", DType::kBF16, {8}).valid());
  EXPECT_FALSE(g.state("d", DType::kU8, {8}).valid());
  const Tensor in[] = {a, a};
  for (const Tensor t : g.op("add", "later", in)) EXPECT_FALSE(t.valid());
  for (const Tensor t : g.op("no such kind", "later", in)) EXPECT_FALSE(t.valid());
  g.set_outputs({sum});
  EXPECT_EQ(error_of(g), first);
  EXPECT_EQ(g, before);
  EXPECT_TRUE(g.outputs().empty());
  EXPECT_EQ(g.tensor(sum.id).storage, Storage::kActivation);
}

// Every typed call indexes the list that op() returns, also after an error.
TEST(OpGraph, TypedCallsSurviveAnError) {
  OpGraph g("g");
  const Tensor bad;
  EXPECT_FALSE(g.add(bad, bad).valid());
  EXPECT_FALSE(g.rmsnorm(bad, bad).valid());
  EXPECT_FALSE(g.gemm(bad, bad).valid());
  EXPECT_FALSE(g.add_rmsnorm_quant(bad, bad, bad).scale.valid());
  const OpGraph::Quantized q{bad, bad};
  const OpGraph::Positions where{bad, bad, bad};
  EXPECT_FALSE(g.qkv_a(q, q, q, bad, bad, where, bad).kv.valid());
  EXPECT_FALSE(g.head_gate(bad, bad).valid());
  g.indexer_k(q, q, bad, bad, where, bad);
  EXPECT_FALSE(g.indexer_q(q, q, bad, where).gate.valid());
  EXPECT_FALSE(g.main_q(q, q, where).second.valid());
  g.q_absorb(bad, q, bad);
  EXPECT_FALSE(g.indexer_score(bad, bad, bad, bad, bad).valid());
  EXPECT_FALSE(g.status());
  EXPECT_TRUE(g.ops().empty());
}

TEST(OpGraph, RefusesWrongCalls) {
  const auto error_after = [](auto&& call) {
    OpGraph g("g");
    const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", 8});
    call(g, x);
    EXPECT_TRUE(g.ops().empty());
    EXPECT_EQ(g.tensors().size(), 1U);
    return error_of(g);
  };
  using Names = std::vector<std::string_view>;
  const auto record = [&](std::string_view kind, std::string_view name, size_t num_inputs, Attrs attrs,
                          Names names = {}) {
    return error_after(
        [&](OpGraph& g, Tensor x) { g.op(kind, name, std::vector<Tensor>(num_inputs, x), attrs, names); });
  };
  EXPECT_THAT(record("warp_drive", "w", 1, {}), HasSubstr("op 'w': unknown op kind 'warp_drive'"));
  EXPECT_THAT(record("add", "a", 3, {}), HasSubstr("op 'a' (add): takes 2 inputs, got 3"));
  EXPECT_THAT(record("add", "a", 2, {{"eps", 1.0}}), HasSubstr("op 'a' (add): unknown attribute 'eps'"));
  EXPECT_THAT(record("add", "a", 2, {}, {"p", "q"}), HasSubstr("op 'a' (add): defines 1 outputs, got 2 names"));
  EXPECT_THAT(record("add", "a", 2, {}, {"x"}), AllOf(HasSubstr("tensor 'x' exists already"), HasSubstr("op='a'")));
  EXPECT_THAT(record("add", "a", 2, {}, {""}), AllOf(HasSubstr("the tensor name '' is empty"), HasSubstr("op='a'")));
  EXPECT_THAT(record("add", std::string(300, 'n'), 2, {}), HasSubstr("is longer than 256 bytes"));
  EXPECT_THAT(record("add", "bad\xff", 2, {}), HasSubstr("the op name 'bad\\xff' is not valid UTF-8"));
  EXPECT_THAT(error_after([](OpGraph& g, Tensor x) { g.add(x, Tensor{}, "a"); }),
              HasSubstr("op 'a' (add): input 'b' is not a tensor of this graph"));
  EXPECT_THAT(error_after([](OpGraph& g, Tensor x) { g.add(x, Tensor{17}, "a"); }),
              HasSubstr("op 'a' (add): input 'b' is not a tensor of this graph"));
}

TEST(OpGraph, RefusesDuplicateOpNames) {
  OpGraph g("g");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", 8});
  g.add(x, x, "a");
  g.add(x, x, "a");
  EXPECT_THAT(error_of(g), HasSubstr("op 'a' (add): an op of this name exists already"));
  EXPECT_EQ(g.ops().size(), 1U);
}

// Any schema that has attributes serves; the list of families grows with the project.
TEST(OpGraph, RefusesAttributesOfWrongTypeRepeatedOrWithoutTextForm) {
  const OpSchema* schema = nullptr;
  std::string_view double_attr;
  for (const OpSchema* s : op_schemas())
    for (const AttrSpec& a : s->attr_specs())
      if (std::holds_alternative<double>(a.default_value)) {
        schema = s;
        double_attr = a.name;
      }
  if (schema == nullptr) GTEST_SKIP() << "no family with a floating-point attribute";
  const auto record = [&](const Attrs& attrs) {
    OpGraph g("g");
    const Tensor x = g.runtime_arg("x", DType::kF64, {1});  // no family takes it: attributes are judged first
    g.op(schema->kind(), "o", std::vector<Tensor>(schema->input_names().size(), x), attrs);
    return error_of(g);
  };
  const std::string name(double_attr);
  EXPECT_THAT(record({{name, int64_t{1}}}), HasSubstr("wrong type of attribute '" + name + "'"));
  EXPECT_THAT(record({{name, true}}), HasSubstr("wrong type of attribute '" + name + "'"));
  EXPECT_THAT(record({{name, std::string("1")}}), HasSubstr("wrong type of attribute '" + name + "'"));
  EXPECT_THAT(record({{name, 1.0}, {name, 2.0}}), HasSubstr("repeated attribute '" + name + "'"));
  EXPECT_THAT(record({{name, std::numeric_limits<double>::quiet_NaN()}}), HasSubstr("non-finite value of attribute"));
  EXPECT_THAT(record({{name, std::numeric_limits<double>::infinity()}}), HasSubstr("non-finite value of attribute"));
  EXPECT_THAT(record({{name, 1.0}}), Not(HasSubstr("attribute '" + name + "'")));
}

TEST(OpGraph, RefusesShapesThatMeanNothing) {
  const auto error_for = [](Shape shape) {
    OpGraph g("g");
    EXPECT_FALSE(g.bound_weight("w", DType::kF32, std::move(shape)).valid());
    EXPECT_FALSE(g.find_tensor("w").valid());
    EXPECT_TRUE(g.tensors().empty());
    return error_of(g);
  };
  EXPECT_THAT(error_for({}), HasSubstr("tensor 'w' has 0 dimensions, expected 1 to 4"));
  EXPECT_THAT(error_for({1, 2, 3, 4, 5}), HasSubstr("tensor 'w' has 5 dimensions, expected 1 to 4"));
  EXPECT_THAT(error_for({4, 0}),
              HasSubstr("tensor 'w' has shape [4, 0]: dimension 1 must be a constant from 1 to 2147483647"));
  EXPECT_THAT(error_for({-1}), HasSubstr("dimension 0"));
  EXPECT_THAT(error_for({int64_t{1} << 31}), HasSubstr("dimension 0"));
  EXPECT_THAT(error_for({"*"}), HasSubstr("dimension 0"));
  EXPECT_THAT(error_for({"two words"}), HasSubstr("dimension 0"));
  EXPECT_THAT(error_for({"17"}), HasSubstr("dimension 0"));
  EXPECT_THAT(error_for({Dim::sym("KV", 0)}), HasSubstr("dimension 0"));
  EXPECT_THAT(error_for({Dim::sym("KV", -4)}), HasSubstr("dimension 0"));
  Dim both = Dim::sym("M");
  both.value = 7;
  EXPECT_THAT(error_for({both}), HasSubstr("dimension 0"));
  OpGraph sound("g");
  EXPECT_TRUE(sound.bound_weight("w", DType::kF32, {1, "M", Dim::sym("KV", 256), (int64_t{1} << 31) - 1}).valid());
  EXPECT_TRUE(sound.status());
}

TEST(OpGraph, RefusesNamesThatHaveNoTextForm) {
  const auto error_for = [](const std::string& name) {
    OpGraph g("g");
    g.runtime_arg(name, DType::kF32, {1});
    return error_of(g);
  };
  EXPECT_THAT(error_for(""), HasSubstr("the tensor name '' is empty"));
  EXPECT_THAT(error_for(std::string("a\0b", 3)), HasSubstr("holds a NUL character"));
  EXPECT_THAT(error_for("\xc3"), HasSubstr("is not valid UTF-8"));
  EXPECT_THAT(error_for(std::string(257, 'x')), HasSubstr("is longer than 256 bytes"));
  EXPECT_EQ(error_for(std::string(256, 'x')), "no error");
  EXPECT_EQ(error_for("größe \"<&>\\\n"), "no error");
  EXPECT_THAT(error_of(OpGraph("")), HasSubstr("the graph name '' is empty"));
  EXPECT_FALSE(OpGraph("\xff").runtime_arg("x", DType::kF32, {1}).valid());
}

TEST(OpGraph, ErrorsStayOnOneLineWhateverTheNames) {
  OpGraph g("two\nlines");
  const Tensor a = g.runtime_arg("a\r\nb", DType::kF32, {8});
  g.add(a, a, "o\np");
  const std::string text = error_of(g);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_THAT(text, AllOf(HasSubstr("'two\\nlines'"), HasSubstr("'a\\x0d\\nb'"), HasSubstr("'o\\np'")));
}

TEST(OpGraph, AStateMayBeUpdatedTwiceAndReadAfterwards) {
  const OpGraph g = test::absorb_chain();
  ASSERT_TRUE(g.status()) << error_of(g);
  const TensorId q_out = g.find_tensor("q_out").id;
  EXPECT_THAT(g.ops()[0].updates, ElementsAre(q_out));
  EXPECT_THAT(g.ops()[1].updates, ElementsAre(q_out));
  EXPECT_THAT(g.ops()[2].inputs, ::testing::Contains(q_out));
  EXPECT_THAT(g.ops()[2].updates, ElementsAre(g.find_tensor("last").id));
  EXPECT_TRUE(g.ops()[0].outputs.empty());
  EXPECT_EQ(g.tensor(q_out).storage, Storage::kState);
  EXPECT_EQ(g.tensor(q_out).producer, kInvalidId);
  EXPECT_THAT(g.outputs(), ElementsAre(q_out));
}

TEST(OpGraph, OnlyTheCallersTensorsAreUpdatedAndNotWhileTheyAreRead) {
  const auto absorb = [](Storage storage, bool reads_itself) {
    OpGraph g("g");
    const Tensor q_nope = g.runtime_arg("q_nope", DType::kBF16, {"M", 2, 128});
    const int64_t nope = reads_itself ? 320 : 128;
    const OpGraph::Quantized kv_b{g.bound_weight("kv_b", DType::kF8E4M3, {2 * (nope + 64), 256}),
                                  g.bound_weight("kv_b_scale", DType::kF32, {reads_itself ? 6 : 3, 2})};
    const Shape shape{"M", 2, 320};
    const Tensor q_out = storage == Storage::kState    ? g.state("q_out", DType::kBF16, shape)
                         : storage == Storage::kWeight ? g.bound_weight("q_out", DType::kBF16, shape)
                                                       : g.runtime_arg("q_out", DType::kBF16, shape);
    g.q_absorb(reads_itself ? q_out : q_nope, kv_b, q_out, {{"v", int64_t{64}}}, "D2");
    EXPECT_EQ(g.ops().empty(), !g.status());
    return error_of(g);
  };
  EXPECT_EQ(absorb(Storage::kState, false), "no error");
  EXPECT_THAT(absorb(Storage::kRuntimeArg, false),
              HasSubstr("op 'D2' (q_absorb): writes tensor 'q_out', which is a read-only runtime_arg"));
  EXPECT_THAT(absorb(Storage::kWeight, false),
              HasSubstr("op 'D2' (q_absorb): writes tensor 'q_out', which is a read-only weight"));
  EXPECT_THAT(absorb(Storage::kState, true),
              HasSubstr("op 'D2' (q_absorb): updates tensor 'q_out' in place and takes it as another input too"));
}

TEST(OpGraph, OutputsAreActivationsOrStates) {
  OpGraph g("g");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", 8});
  const Tensor cache = g.state("cache", DType::kU8, {"PAGES", 64});
  const Tensor y = g.add(x, x);
  g.set_outputs({y, cache, y});
  g.set_outputs({cache});
  ASSERT_TRUE(g.status()) << error_of(g);
  EXPECT_THAT(g.outputs(), ElementsAre(y.id, cache.id));
  EXPECT_EQ(g.tensor(y.id).storage, Storage::kOutput);
  EXPECT_EQ(g.tensor(cache.id).storage, Storage::kState);

  OpGraph arg = g;
  arg.set_outputs({x});
  EXPECT_THAT(error_of(arg), HasSubstr("set_outputs: tensor 'x' is a read-only runtime_arg"));
  EXPECT_EQ(arg.outputs(), g.outputs());
  OpGraph foreign = g;
  foreign.set_outputs({Tensor{99}});
  EXPECT_THAT(error_of(foreign), HasSubstr("set_outputs: not a tensor of this graph"));
}

TEST(OpGraph, EqualityCoversNamesShapesAttributesAndOutputs) {
  const auto make = [](std::string_view graph, std::string_view tensor, int64_t n, std::string_view op, bool output) {
    OpGraph g{std::string(graph)};
    const Tensor x = g.runtime_arg(tensor, DType::kBF16, {"M", n});
    const Tensor y = g.add(x, x, op);
    if (output) g.set_outputs({y});
    return g;
  };
  const OpGraph g = make("g", "x", 8, "a", true);
  EXPECT_EQ(g, make("g", "x", 8, "a", true));
  EXPECT_FALSE(g == make("h", "x", 8, "a", true));
  EXPECT_FALSE(g == make("g", "y", 8, "a", true));
  EXPECT_FALSE(g == make("g", "x", 9, "a", true));
  EXPECT_FALSE(g == make("g", "x", 8, "b", true));
  EXPECT_FALSE(g == make("g", "x", 8, "a", false));
}

TEST(Attrs, KeepOrderAndTypes) {
  Attrs a{{"n", int64_t{3}}, {"eps", 1e-5}};
  a.set("flag", true);
  a.set("n", int64_t{4});
  a.set("mode", std::string("fast"));
  EXPECT_EQ(a.items().size(), 4U);
  EXPECT_EQ(a.items()[0].first, "n");
  EXPECT_EQ(a.get_int("n", 0), 4);
  EXPECT_EQ(a.get_double("eps", 0), 1e-5);
  EXPECT_TRUE(a.get_bool("flag", false));
  EXPECT_EQ(a.get_string("mode", ""), "fast");
  EXPECT_EQ(a.get_double("n", 0.5), 0.5);  // a wrong type counts as absent
  EXPECT_EQ(a.get_int("missing", 7), 7);
  EXPECT_EQ(a.find("missing"), nullptr);
}

TEST(Text, Utf8) {
  for (const char* good : {"", "plain", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(is_valid_utf8(good)) << good;
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\xbf", "\xe2\x82", "\xed\xa0\x80",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xc2"})
    EXPECT_FALSE(is_valid_utf8(bad)) << quote_name(bad);
}

TEST(Text, QuoteName) {
  EXPECT_EQ(quote_name("plain"), "'plain'");
  EXPECT_EQ(quote_name("a\nb\tc\x01\xff"), "'a\\nb\\tc\\x01\\xff'");
  EXPECT_EQ(quote_name("gr\xc3\xb6\xc3\x9f"
                       "e"),
            "'gr\xc3\xb6\xc3\x9f"
            "e'");
  std::string longer(119, 'x');
  longer += "\xc3\xb6 and more";
  const std::string cut = quote_name(longer);
  EXPECT_TRUE(is_valid_utf8(cut));
  EXPECT_THAT(cut, HasSubstr("...'"));
}

}  // namespace
}  // namespace megartp
