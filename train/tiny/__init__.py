"""Makes what the small default judge measures with: clips with known faults, and heads that compare their measures.

filming                                           what is filmed: footage, photographs, the drawn world
spoiled_pictures, spoiled_motion -> fault_kinds   what is wrong with it, from barely visible to gross
encoders, specimens -> making                     clips of a scene, measured at once; only the measures are kept
drawn_pairs -> heads -> figures_of_heads          labelled pairs, trees and networks, figures on scenes apart
"""
