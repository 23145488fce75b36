//! Instructions on general registers. The first two codes are those of 32 and 64 bits.

use super::inst::rows;

rows! {
    GENERAL
    MOV_I "wi" free Never:
        Mov_r32_imm32 Mov_r64_imm64 INVALID INVALID INVALID INVALID;
    MOV_SI "wi" free Never:
        INVALID Mov_rm64_imm32 INVALID INVALID INVALID INVALID;
    LOAD "ww" free Last:
        Mov_r32_rm32 Mov_r64_rm64 INVALID INVALID INVALID INVALID;
    STORE "ww" free First:
        Mov_rm32_r32 Mov_rm64_r64 INVALID INVALID INVALID INVALID;
    STORE8 "bb" free First:
        Mov_rm8_r8 INVALID INVALID INVALID INVALID INVALID;
    STORE16 "cc" free First:
        Mov_rm16_r16 INVALID INVALID INVALID INVALID INVALID;
    MOVZX8 "wb" free Last:
        Movzx_r32_rm8 Movzx_r64_rm8 INVALID INVALID INVALID INVALID;
    MOVZX16 "wc" free Last:
        Movzx_r32_rm16 Movzx_r64_rm16 INVALID INVALID INVALID INVALID;
    MOVSX8 "wb" free Last:
        Movsx_r32_rm8 Movsx_r64_rm8 INVALID INVALID INVALID INVALID;
    MOVSX16 "wc" free Last:
        Movsx_r32_rm16 Movsx_r64_rm16 INVALID INVALID INVALID INVALID;
    MOVSXD "wr" free Last:
        INVALID Movsxd_r64_rm32 INVALID INVALID INVALID INVALID;
    LEA "ww" free Last:
        Lea_r32_m Lea_r64_m INVALID INVALID INVALID INVALID;
    ADD "www" tied Last:
        Add_r32_rm32 Add_r64_rm64 INVALID INVALID INVALID INVALID;
    IMUL "www" tied Last:
        Imul_r32_rm32 Imul_r64_rm64 INVALID INVALID INVALID INVALID;
    AND "www" tied Last:
        And_r32_rm32 And_r64_rm64 INVALID INVALID INVALID INVALID;
    OR "www" tied Last:
        Or_r32_rm32 Or_r64_rm64 INVALID INVALID INVALID INVALID;
    XOR "www" tied Last:
        Xor_r32_rm32 Xor_r64_rm64 INVALID INVALID INVALID INVALID;
    ADD_I "wwi" tied Never:
        Add_rm32_imm32 Add_rm64_imm32 INVALID INVALID INVALID INVALID;
    AND_I "wwi" tied Never:
        And_rm32_imm32 And_rm64_imm32 INVALID INVALID INVALID INVALID;
    OR_I "wwi" tied Never:
        Or_rm32_imm32 Or_rm64_imm32 INVALID INVALID INVALID INVALID;
    XOR_I "wwi" tied Never:
        Xor_rm32_imm32 Xor_rm64_imm32 INVALID INVALID INVALID INVALID;
    IMUL_I "wwi" free Never:
        Imul_r32_rm32_imm32 Imul_r64_rm64_imm32 INVALID INVALID INVALID INVALID;
    SHL_I "wwi" tied Never:
        Shl_rm32_imm8 Shl_rm64_imm8 INVALID INVALID INVALID INVALID;
    SHR_I "wwi" tied Never:
        Shr_rm32_imm8 Shr_rm64_imm8 INVALID INVALID INVALID INVALID;
    SAR_I "wwi" tied Never:
        Sar_rm32_imm8 Sar_rm64_imm8 INVALID INVALID INVALID INVALID;
    SHL_CL "ww" tied Never:
        Shl_rm32_CL Shl_rm64_CL INVALID INVALID INVALID INVALID;
    SHR_CL "ww" tied Never:
        Shr_rm32_CL Shr_rm64_CL INVALID INVALID INVALID INVALID;
    SAR_CL "ww" tied Never:
        Sar_rm32_CL Sar_rm64_CL INVALID INVALID INVALID INVALID;
    SHLX "www" free Never:
        VEX_Shlx_r32_rm32_r32 VEX_Shlx_r64_rm64_r64 INVALID INVALID INVALID INVALID;
    SHRX "www" free Never:
        VEX_Shrx_r32_rm32_r32 VEX_Shrx_r64_rm64_r64 INVALID INVALID INVALID INVALID;
    SARX "www" free Never:
        VEX_Sarx_r32_rm32_r32 VEX_Sarx_r64_rm64_r64 INVALID INVALID INVALID INVALID;
    NEG "ww" tied Never:
        Neg_rm32 Neg_rm64 INVALID INVALID INVALID INVALID;
    CMP "ww" free Last:
        Cmp_r32_rm32 Cmp_r64_rm64 INVALID INVALID INVALID INVALID;
    CMP_I "wi" free Never:
        Cmp_rm32_imm32 Cmp_rm64_imm32 INVALID INVALID INVALID INVALID;
    TEST "ww" free Never:
        Test_rm32_r32 Test_rm64_r64 INVALID INVALID INVALID INVALID;
    SETCC "b" free Never:
        Sete_rm8 INVALID INVALID INVALID INVALID INVALID;
    CMOV "www" tied Never:
        Cmove_r32_rm32 Cmove_r64_rm64 INVALID INVALID INVALID INVALID;
    CDQ "" free Never:
        Cdq Cqo INVALID INVALID INVALID INVALID;
    DIV "w" free Never:
        Div_rm32 Div_rm64 INVALID INVALID INVALID INVALID;
    IDIV "w" free Never:
        Idiv_rm32 Idiv_rm64 INVALID INVALID INVALID INVALID;
    CALL "R" free Last:
        INVALID Call_rm64 INVALID INVALID INVALID INVALID;
    VZEROUPPER "" free Never:
        INVALID VEX_Vzeroupper INVALID INVALID INVALID INVALID;
    SFENCE "" free Never:
        INVALID Sfence INVALID INVALID INVALID INVALID;
    ENTRY "" free Never:
        INVALID INVALID INVALID INVALID INVALID INVALID;
    JUMP "" free Never:
        Jmp_rel32_64 INVALID INVALID INVALID INVALID INVALID;
    BRANCH "" free Never:
        Je_rel32_64 INVALID INVALID INVALID INVALID INVALID;
    RET "" free Never:
        Retnq INVALID INVALID INVALID INVALID INVALID;
}

/// Instructions that change the flags and have another result.
pub(crate) static FLAGS: &[&super::inst::Row] = &[
    &ADD, &IMUL, &AND, &OR, &XOR, &ADD_I, &AND_I, &OR_I, &XOR_I, &IMUL_I, &SHL_I, &SHR_I, &SAR_I,
    &SHL_CL, &SHR_CL, &SAR_CL, &NEG, &DIV, &IDIV,
];
