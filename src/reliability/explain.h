// A chain for people: states, transitions and the generator matrix with symbols and values, as text
// and as a Graphviz graph. Everything is read off the Chain that the figures are computed from.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reliability/chain.h"

namespace eplog::reliability {

// "EPLOG" or "conventional RAID".
[[nodiscard]] std::string SystemName(System system);
// "(n-1)λs + λh"
[[nodiscard]] std::string RateText(const Transition& transition, const Chain& chain);
// "S2 (1,1)" or "S3 (2,*)", and in words "1 SSD down".
[[nodiscard]] std::string StateName(const Chain& chain, size_t state);
[[nodiscard]] std::string StateWords(const Chain& chain, size_t state);

// Entry (i, j) of the generator in symbols; the diagonal is minus the sum of its row, "0" where
// nothing is. For EPLOG with one parity this is equation (3) of the paper's supplement.
[[nodiscard]] std::vector<std::vector<std::string>> GeneratorSymbols(const Chain& chain);

// Symbols, states, transitions, generator. Several lines, each ended.
[[nodiscard]] std::string ExplainText(const Chain& chain);
// A digraph for `dot`, with a box around each chain.
[[nodiscard]] std::string ExplainDot(std::span<const Chain> chains);

}  // namespace eplog::reliability
