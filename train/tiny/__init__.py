"""Makes the small default judge: clips with known faults, heads that compare their measures, and its text model.

filming                                           what is filmed: footage, photographs, animations, the drawn world
spoiled_pictures, spoiled_motion -> fault_kinds   what is wrong with it, from barely visible to gross
encoders, specimens -> making                     clips of a scene, measured at once; only the measures are kept
drawn_pairs -> heads -> figures_of_heads          labelled pairs, trees and networks, figures on scenes apart
seen_pairs -> text_cases -> text_model            pairs to look at, what is written of them, training
"""
